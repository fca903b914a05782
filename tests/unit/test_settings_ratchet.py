"""Every setting there is. A new one is added here by hand: each is a promise to everybody who runs this."""

from importlib import import_module
from pathlib import Path

import pytest

from libs.runtime.config import ServiceConfig

COMMON = {
    "instance",
    "nats_url",
    "nats_user",
    "nats_password",
    "otlp_endpoint",
    "otlp_sample_ratio",
    "trace_dir",
    "health_file",
    "log_level",
    "log_format",
    "drain_s",
    "failpoints",
    "failpoints_file",
}
WORKER = {
    "model",
    "cell",
    "model_dir",
    "dtype",
    "kv_dtype",
    "block_tokens",
    "max_model_len",
    "max_batch_tokens",
    "pool",
    "host_pool",
    "host_bytes_per_s",
    "kernels",
    "packed_dir",
    "threads",
    "link_token",
    "host",
    "incarnation",
}
SETTINGS = {
    "gateway": {
        "host",
        "port",
        "grpc_port",
        "grpc_admin_port",
        "model_dir",
        "model",
        "aliases",
        "more_models",
        "generation_config",
        "api_key",
        "keys_path",
        "max_body_bytes",
        "otlp_sample_key",
        "request_timeout_s",
        "strict_fields",
        "max_waiting",
        "max_wait_s",
        "notice_s",
        "short_queue",
        "max_choices",
        "max_connections",
        "max_model_len",
        "cors_origins",
        "wrong_keys",
        "redis_url",
        "redis_user",
        "redis_password",
    },
    "tokenizer": {
        "model_dir",
        "model",
        "hash_key",
        "max_model_len",
        "redis_url",
        "redis_user",
        "redis_password",
        "threads",
    },
    "scheduler": {
        "model",
        "cell",
        "link_host",
        "link_port",
        "link_token",
        "redis_url",
        "redis_user",
        "redis_password",
        "role",
        "disaggregate_min_tokens",
        "max_chunk_tokens",
        "chunk_target_ms",
        "itl_target_ms",
        "max_waiting",
        "max_running",
        "preemption",
        "prefix_caching",
        "cache_floor",
        "cache_ceiling",
        "event_log_path",
    },
    "prefill_worker": WORKER,
    "decode_worker": WORKER,
}


def config_of(service: str) -> type[ServiceConfig]:
    config: type[ServiceConfig] = import_module(f"services.{service}.config").Config
    return config


@pytest.mark.parametrize("service", SETTINGS)
def test_the_settings_are_exactly_these(service: str) -> None:
    """No setting appears, goes or is renamed without this list."""
    assert set(config_of(service).model_fields) == COMMON | SETTINGS[service]


def test_every_service_is_listed() -> None:
    """A new service's settings are watched as well."""
    folders = Path(__file__).parents[2].joinpath("services").iterdir()
    assert {folder.name for folder in folders if (folder / "config.py").exists()} == set(SETTINGS)


@pytest.mark.parametrize("service", SETTINGS)
def test_secrets_are_masked_by_type(service: str) -> None:
    """A setting whose name says secret cannot be printed."""
    secret = ("password", "token", "api_key", "hash_key")
    fields = config_of(service).model_fields
    plain = [
        name for name, field in fields.items() if name.endswith(secret) and "SecretStr" not in str(field.annotation)
    ]
    assert plain == []
