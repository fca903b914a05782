"""Decode worker process. Wiring only: `decode.py` says what it is, libs/engine/worker is what it does."""

from libs.engine.worker.run import run_worker
from libs.runtime.process import run
from services.decode_worker.config import Config
from services.decode_worker.decode import ROLE

if __name__ == "__main__":
    run(lambda: run_worker(Config, ROLE))
