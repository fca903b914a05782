"""What `headrace up` was asked for, as plain checked values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from libs.contracts.errors import ConfigError
from libs.contracts.flow import subject_token
from libs.contracts.kv_layout import BLOCK_TOKENS

SECRET_ENDINGS: Final = ("_key", "_password", "_token")
SERVICES: Final = ("scheduler", "decode_worker", "prefill_worker", "tokenizer", "gateway")
BROKERS: Final = ("nats", "valkey")  # their one setting is `binary`
EVERY_SERVICE: Final = "*"
ROLES: Final = ("auto", "hybrid", "disaggregated")
DTYPES: Final = ("bfloat16", "float32", "int8", "int8w")

Overrides = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model directory, the name that it is served under, and further names for it."""

    name: str
    model_dir: Path
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """One stack. `kv_blocks` and `max_model_len` are 0 where the supervisor chooses."""

    run_dir: Path
    model_dir: Path = Path()
    model: str = ""  # the name it is served under
    aliases: tuple[str, ...] = ()  # and further names for it
    more_models: tuple[
        NamedModel, ...
    ] = ()  # each in a cell of its own, with as many processes and blocks as the first
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free one
    dtype: str = "bfloat16"
    prefill: int = 1
    decode: int = 1
    tokenizers: int = 1
    schedulers: int = 1  # one leads, the others stand by
    kv_blocks: int = 0
    host_blocks: int = 0  # of the host tier, where blocks of preempted sequences rest; 0: there is none
    host_tier: Path | None = None  # the file that it lies in; None: memory
    block_tokens: int = 16
    max_model_len: int = 0
    role: str = "auto"
    kernels: str = "auto"  # auto, native, torch, or a level of the native ones
    packed_dir: Path | None = None  # where packed weights are kept for all workers; None: each has its own
    api_key: str = field(default="", repr=False)
    overrides: Overrides = field(default_factory=dict, repr=False)
    worker_package: str = "services"  # where `python -m` finds the workers; tests put a fake engine there
    failpoints_file: str = ""  # of every process, the supervisor included; for tests
    longest_backoff_s: float = 5.0  # before a program is started again; tests kill more often than accidents do

    @property
    def models(self) -> tuple[NamedModel, ...]:
        """All that are served, the first one first."""
        return (NamedModel(self.model, self.model_dir, self.aliases), *self.more_models)

    @property
    def needs_key(self) -> bool:
        """Whether clients have to show one."""
        return bool(self.api_key or self.overrides.get("gateway", {}).get("keys_path"))

    @property
    def grpc_port(self) -> int:
        """Where the gateway listens for gRPC; 0: nowhere, or where its log says."""
        port = self.overrides.get("gateway", {}).get("grpc_port", "")
        return int(port) if port.isascii() and port.isdigit() else 0

    def count(self, service: str) -> int:
        """How many processes of `service` run."""
        counts = {
            "prefill_worker": self.prefill,
            "decode_worker": self.decode,
            "tokenizer": self.tokenizers,
            "scheduler": self.schedulers,
        }
        return counts.get(service, 1)


def parse_overrides(settings: Iterable[str]) -> dict[str, dict[str, str]]:
    """`service.key=value` texts as {service: {key: value}}; service `*` is all of them. Raises ConfigError."""
    overrides: dict[str, dict[str, str]] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        service, dot, key = name.partition(".")
        if not equals or not dot or not key.isidentifier():
            raise ConfigError(f"--set takes service.key=value, not {setting!r}")
        if service in BROKERS and key != "binary":
            raise ConfigError(f"--set {service} has one setting, binary, and no {key!r}")
        if service not in (*SERVICES, *BROKERS, EVERY_SERVICE):
            raise ConfigError(f"--set knows no service {service!r}; there are {', '.join(SERVICES)}, and * for all")
        if key.endswith(SECRET_ENDINGS):
            raise ConfigError(
                f"{service}.{key} is a secret, and everybody can read a command line; "
                f"put it into a file and say --set {service}.{key}_file=PATH"
            )
        for target in SERVICES if service == EVERY_SERVICE else (service,):
            overrides.setdefault(target, {})[key] = value
    return overrides


def check_options(options: UpOptions) -> None:
    """Refuse what cannot work whatever the model and the machine. Raises ConfigError."""
    for name, value, allowed in (
        ("--dtype", options.dtype, DTYPES),
        ("--role", options.role, ROLES),
        ("--block-tokens", options.block_tokens, BLOCK_TOKENS),
    ):
        if value not in allowed:
            raise ConfigError(f"{name} is one of {', '.join(map(str, allowed))}, not {value}")
    names = [subject_token(name) for model in options.models for name in (model.name, *model.aliases)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"two models are called {', '.join(sorted(twice))}: give each a --served-model-name")
    if options.role == "disaggregated" and not options.prefill:
        raise ConfigError("--role disaggregated needs a prefill worker: --prefill 1 or more")
    if options.host_tier is not None and options.more_models:
        raise ConfigError("--host-tier names one file, and each model needs a tier of its own: leave it in memory")
    if options.host_tier is not None and not options.host_blocks:
        raise ConfigError("--host-tier names the file of a tier without blocks: give --host-blocks")
    if not options.needs_key and not is_loopback(options.host):
        raise ConfigError(
            f"--host {options.host} is reachable from other machines and there is no API key; "
            "set HR_GATEWAY_API_KEY or --set gateway.keys_path=FILE, or serve on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`; a name other than localhost counts as reachable."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
