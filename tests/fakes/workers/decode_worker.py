"""The decode worker's process with the fake engine."""

from libs.engine.worker.run import run_worker
from libs.runtime.process import run
from services.decode_worker.config import Config
from services.decode_worker.decode import ROLE
from tests.fakes.worker_process import load_fake

if __name__ == "__main__":
    run(lambda: run_worker(Config, ROLE, load_fake))
