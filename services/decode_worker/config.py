"""Settings of the decode worker, HR_DECODE_WORKER_*: both workers run the same engine, so none are its own."""

from libs.engine.worker.config import WorkerConfig


class Config(WorkerConfig):
    pass
