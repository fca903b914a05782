"""Gateway process. Wiring only."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager

from libs.contracts.messages import ServiceStatus
from libs.runtime import failpoints
from libs.runtime.bus import Bus
from libs.runtime.config import describe, load_config
from libs.runtime.logs import get_logger, setup_logs
from libs.runtime.metrics import ProcessFacts, gather
from libs.runtime.process import run, stop_signal
from libs.runtime.quotas import Quotas
from libs.runtime.ring import Ring, open_ring
from libs.runtime.status import serve_status
from libs.runtime.telemetry import telemetry
from libs.runtime.valkey import Valkey
from libs.text.model_files import read_model_files
from libs.text.tokenizer import Tokenizer
from services.gateway.app import create_app
from services.gateway.catalog import Catalog, Model
from services.gateway.charges import Charges
from services.gateway.config import Config, ModelSettings
from services.gateway.cors import Cors, parse_origins
from services.gateway.crowd import Crowd
from services.gateway.door import Door
from services.gateway.hub import Hub
from services.gateway.intake import listening
from services.gateway.keys import Keys
from services.gateway.limits import Limits
from services.gateway.metrics import Metrics
from services.gateway.outbox import Outbox
from services.gateway.rpc import Inference
from services.gateway.rpc_server import serving_rpc
from services.gateway.server import serving
from services.gateway.service import Service
from services.gateway.terms import Terms
from services.gateway.tokens import TokenizerClient, Tokens, tokenizer_info

NAME = "gateway"

log = get_logger(NAME)


async def main() -> None:
    config = load_config(Config, prefix="HR_GATEWAY_")
    setup_logs(config.log_level, config.log_format, service=NAME, instance=config.instance)
    failpoints.arm(config.failpoints, config.failpoints_file, config.instance)
    log.info("starting", **describe(config))
    keys = Keys(config.api_key.get_secret_value(), config.keys_path, wrong_keys=config.wrong_keys)
    catalog = Catalog([read_model(one, config) for one in config.models])
    metrics = gather_metrics(catalog)
    async with (
        telemetry(NAME, config.instance, config.otlp_endpoint, config.otlp_sample_ratio) as export,
        open_ring(config.trace_dir, NAME, config.instance) as ring,
        Bus.connect(
            config.nats_url, service=NAME, user=config.nats_user, password=config.nats_password.get_secret_value()
        ) as bus,
        shared_counts(config) as valkey,
        stop_signal() as stop,
    ):
        directory = await bus.cells()
        outbox = Outbox(bus, config.instance, Terms(directory, catalog.names), patience_s=config.request_timeout_s)
        crowd = Crowd(max_waiting=config.max_waiting, max_wait_s=config.max_wait_s, short_queue=config.short_queue)
        hub = Hub(outbox, metrics, crowd)
        door = Door(bus, directory, outbox, catalog.names)
        service = build_service(config, catalog, door, hub, metrics, Charges(Quotas(valkey)), ring)

        async def scrape(openmetrics: bool) -> str:
            return await gather(bus, metrics.registry, openmetrics=openmetrics)

        facts = ProcessFacts(NAME, config.instance, ring, export, bus=bus.counts, valkey=valkey.counts)
        metrics.registry.register(facts)
        texts = TokenizerClient(bus)
        tokens = Tokens(texts, catalog, max_body_bytes=config.max_body_bytes)
        app = Cors(create_app(service, scrape, keys, tokens), parse_origins(config.cors_origins))
        rpc = serving_rpc(Inference(service, keys, texts).handler, Inference.name, lambda: door.obstacle, config)

        def status() -> ServiceStatus:
            obstacle = door.obstacle
            return ServiceStatus(NAME, config.instance, os.getpid(), config.port, not obstacle, obstacle)

        bus.on_reconnect(hub.send_again)
        async with hub.running(), listening(bus, config.instance, hub), serving(app, config), rpc:
            await serve_status(bus, status, config.health_file)
            door.open()
            log.info("serving", host=config.host, port=config.port)
            await stop.wait()
            door.give_notice()
            await asyncio.sleep(config.notice_s)
            door.close()
            await hub.drain(config.drain_s)
    log.info("stopped")


def shared_counts(config: Config) -> AbstractAsyncContextManager[Valkey]:
    return Valkey.connect(config.redis_url, user=config.redis_user, password=config.redis_password.get_secret_value())


def read_model(settings: ModelSettings, config: Config) -> Model:
    files = read_model_files(settings.model_dir)
    tokenizer = Tokenizer(files)
    limits = Limits(
        model=settings.model,
        max_model_len=settings.max_model_len,
        vocab_size=tokenizer.vocab_size,
        max_choices=config.max_choices,
        sampling=files.sampling if config.generation_config == "auto" else {},
        is_strict=config.strict_fields,
    )
    info = tokenizer_info(files.special_tokens, files.chat_template, limits)
    return Model(limits, tokenizer, info, settings.aliases)


def gather_metrics(catalog: Catalog) -> Metrics:
    """Those of the first model; all have theirs from the start."""
    first, *others = catalog.names
    metrics = Metrics(first)
    for name in others:
        metrics.of(name)
    return metrics


def build_service(
    config: Config, catalog: Catalog, door: Door, hub: Hub, metrics: Metrics, charges: Charges, ring: Ring
) -> Service:
    return Service(
        gateway=config.instance,
        door=door,
        hub=hub,
        metrics=metrics,
        catalog=catalog,
        max_body_bytes=config.max_body_bytes,
        request_timeout_s=config.request_timeout_s,
        charges=charges,
        ring=ring,
        sample_key=config.otlp_sample_key.get_secret_value().encode(),
    )


if __name__ == "__main__":
    run(main)
