"""Settings of the prefill worker, HR_PREFILL_WORKER_*: both workers run the same engine, so none are its own."""

from libs.engine.worker.config import WorkerConfig


class Config(WorkerConfig):
    pass
