"""Writes what the chart repeats of the code: `python -m deploy.chart_files`, after a change of settings or brokers.

Types of settings go into values.schema.json, the brokers' configuration without its secrets into files/brokers.json.
"""

import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from deploy.broker_config import nats_config, valkey_config, valkey_on_port
from deploy.secrets import NATS_PORT, STORE, VALKEY_PORT, draw
from libs.contracts.flow import PERMISSIONS
from libs.runtime.config import ServiceConfig

CHART: Final = Path(__file__).with_name("chart")
CONFIGS: Final = {
    "gateway": "services.gateway.config",
    "tokenizer": "services.tokenizer.config",
    "scheduler": "services.scheduler.config",
    "prefill_worker": "services.prefill_worker.config",
    "decode_worker": "services.decode_worker.config",
    "pool": "deploy.pool.config",
}
COMMON: Final = "service"
_EVERYBODY: Final = {"instance", "nats_url", "nats_user", "nats_password", "health_file", "drain_s"}
_INDEX: Final = {"redis_url", "redis_user", "redis_password"}
_CELL: Final = {"cell", "host", "dtype", "block_tokens", "kernels", "model_dir"}
_WORKER: Final = {*_CELL, "model", "max_model_len", "pool", "packed_dir", "link_token", "incarnation"}
CHART_SETS: Final = {  # from its own values, beside _INDEX; what is left can be said in a service's `settings`
    COMMON: _EVERYBODY,
    "gateway": {
        "model",
        "model_dir",
        "max_model_len",
        "host",
        "port",
        "grpc_port",
        "aliases",
        "more_models",
        "api_key",
        "keys_path",
        "otlp_sample_key",
    },
    "tokenizer": {"model", "model_dir", "max_model_len", "hash_key"},
    "scheduler": {"model", "cell", "link_host", "link_port", "link_token"},
    "prefill_worker": _WORKER,
    "decode_worker": _WORKER,
    "pool": {*_CELL, "path", "blocks"},
}
LONGEST_TEXT: Final = 1024


def settings_schema(service: str) -> dict[str, Any]:
    """JSON schema of the settings that are not the chart's to set: those of every service, or one's own beside them."""
    config = ServiceConfig if service == COMMON else import_module(CONFIGS[service]).Config
    schema = config.model_json_schema()
    left = schema["properties"].keys() - CHART_SETS[COMMON] - CHART_SETS[service] - _INDEX
    return _object({field: schema["properties"][field] for field in sorted(left)}, schema.get("$defs", {}))


def _object(properties: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    typed = {field: _typed(spec, named) for field, spec in properties.items()}
    return {"type": "object", "additionalProperties": False, "properties": typed}


def _typed(spec: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Without words for people, with what a name stands for in its place, and no text without end."""
    if "$ref" in spec:
        model = named[spec["$ref"].rsplit("/", 1)[1]]
        return _object(model["properties"], named) | {"required": model["required"]}
    kept = {key: value for key, value in spec.items() if key not in ("title", "default", "format")}
    if "items" in kept:
        kept["items"] = _typed(kept["items"], named)
    return kept | {"maxLength": LONGEST_TEXT} if kept.get("type") == "string" and "enum" not in kept else kept


def values_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` with the types of all settings as they are now."""
    definitions = {f"{service}_settings": settings_schema(service) for service in CHART_SETS}
    return schema | {"$defs": schema["$defs"] | definitions}


def brokers() -> dict[str, Any]:
    """The brokers' configuration; the chart puts passwords in, and digests in the place of `@index_USER@`."""
    users = index_users()
    valkey = valkey_config(valkey_on_port(VALKEY_PORT), Path("/tmp"), dict(zip(users, users, strict=True)))
    for user in users:
        valkey = valkey.replace(hashlib.sha256(user.encode()).hexdigest(), f"@index_{user}@")
    return {
        "nats": json.loads(nats_config(f"0.0.0.0:{NATS_PORT}", STORE, dict.fromkeys(PERMISSIONS, ""))),
        "valkey": {"users": list(users), "text": valkey},
    }


def index_users() -> tuple[str, ...]:
    """Those who have a password for Valkey."""
    return tuple(name.removeprefix("index_") for name in draw() if name.startswith("index_"))


def texts() -> dict[Path, str]:
    """Every file that is written, and its content."""
    schema = CHART / "values.schema.json"
    contents = {
        schema: values_schema(json.loads(schema.read_text(encoding="utf-8"))),
        CHART / "files" / "brokers.json": brokers(),
    }
    return {path: json.dumps(content, indent=1) + "\n" for path, content in contents.items()}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
