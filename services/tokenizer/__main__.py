"""Tokenizer process. Wiring only: ids come from encode.py, the cell from choose.py, every wait is in loop.py."""

import os

from libs.contracts import flow
from libs.contracts.messages import ServiceStatus
from libs.runtime import failpoints
from libs.runtime.bus import Bus
from libs.runtime.config import describe, load_config
from libs.runtime.logs import get_logger, setup_logs
from libs.runtime.metrics import ProcessFacts, process_metrics, serve_metrics
from libs.runtime.prefix_index import PrefixIndex
from libs.runtime.process import run, stop_signal
from libs.runtime.ring import open_ring
from libs.runtime.status import serve_status
from libs.runtime.telemetry import telemetry
from libs.text.model_files import read_model_files
from libs.text.template import ChatTemplate
from libs.text.tokenizer import Tokenizer
from services.tokenizer.config import Config
from services.tokenizer.encode import Encoder
from services.tokenizer.grammars import Grammars
from services.tokenizer.loads import Loads
from services.tokenizer.loop import Tokenizing
from services.tokenizer.prepare import Preparing, Threads
from services.tokenizer.query import Queries

SERVICE = "tokenizer"


async def main() -> None:
    config = load_config(Config, prefix="HR_TOKENIZER_")
    setup_logs(config.log_level, config.log_format, service=SERVICE, instance=config.instance)
    failpoints.arm(config.failpoints, config.failpoints_file, config.instance)
    get_logger(SERVICE).info("started", **describe(config))
    encoder = build_encoder(config)
    user, password = config.nats_user, config.nats_password.get_secret_value()
    redis_password = config.redis_password.get_secret_value()
    async with (  # opened top to bottom, closed bottom to top
        stop_signal() as stop,
        telemetry(SERVICE, config.instance, config.otlp_endpoint) as export,
        open_ring(config.trace_dir, SERVICE, config.instance) as ring,
        Bus.connect(config.nats_url, service=SERVICE, user=user, password=password) as bus,
        PrefixIndex.connect(config.redis_url, user=config.redis_user, password=redis_password) as index,
    ):
        with Threads(config.threads) as threads, Grammars(config.model_dir) as grammars:
            preparing = Preparing(encoder, await bus.cells(), Loads(bus), index, threads, grammars)
            await bus.serve(
                flow.tokenize_subject(config.model), Queries(preparing).answer, queue=flow.TOKENIZERS_CONSUMER
            )
            await serve_status(bus, lambda: status(config.instance, preparing), config.health_file)
            tokenizing = Tokenizing(bus, preparing, ring)
            counts = {
                "bus": bus.counts,
                "index": index.counts,
                "requests": tokenizing.counts,
                "grammars": grammars.counts,
            }
            facts = ProcessFacts(SERVICE, config.instance, ring, export, **counts)
            await serve_metrics(bus, process_metrics(facts))
            await tokenizing.run(until=stop, drain_s=config.drain_s)
    get_logger(SERVICE).info("stopped")


def build_encoder(config: Config) -> Encoder:
    files = read_model_files(config.model_dir)
    key = config.hash_key_bytes
    return Encoder(config.model, Tokenizer(files), ChatTemplate.from_files(files), config.max_model_len, key)


def status(instance: str, preparing: Preparing) -> ServiceStatus:
    """Ready when some cell can be given work."""
    ready = bool(preparing.cells)
    detail = "" if ready else f"no cell serves {preparing.encoder.model!r}"
    return ServiceStatus(SERVICE, instance, os.getpid(), 0, ready, detail)


if __name__ == "__main__":
    run(main)
