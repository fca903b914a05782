"""Prefill worker process. Wiring only: `prefill.py` says what it is, libs/engine/worker is what it does."""

from libs.engine.worker.run import run_worker
from libs.runtime.process import run
from services.prefill_worker.config import Config
from services.prefill_worker.prefill import ROLE

if __name__ == "__main__":
    run(lambda: run_worker(Config, ROLE))
