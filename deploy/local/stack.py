"""One start of a stack: what was asked for, and everything settled before a process is started."""

import os
import secrets
from dataclasses import dataclass, field
from typing import Final

from deploy.local import capacity
from deploy.local.network import free_port, usable_port
from deploy.local.options import SERVICES, NamedModel, UpOptions
from deploy.local.run_dir import RunDir
from libs.contracts.kv_layout import KvLayout, kv_dtype_of
from libs.engine.kernel_choice import check_dtype, settle_kernels, tile_tag
from libs.engine.model_config import ModelConfig, load_model_config
from libs.runtime.pool_file import create_pool, create_pool_at
from libs.runtime.prefix_library import USERS

SUPERVISOR: Final = "supervisor"
SMALL_MACHINE_CORES: Final = 2


@dataclass(frozen=True, slots=True)
class Credentials:
    """Everything secret in a stack, drawn anew for each."""

    nats: dict[str, str] = field(repr=False)  # NATS user → password
    index: dict[str, str] = field(repr=False)  # Valkey user → password
    link_token: str = field(repr=False)
    hash_key: str = field(repr=False)  # hex

    @classmethod
    def draw(cls) -> "Credentials":
        return cls(
            nats={user: secrets.token_urlsafe(24) for user in (*SERVICES, SUPERVISOR)},
            index={user: secrets.token_urlsafe(24) for user in USERS},
            link_token=secrets.token_urlsafe(24),
            hash_key=secrets.token_hex(32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What serves one model: the memory of its KV pool and of its host tier, and its place among the stack's cells."""

    model: NamedModel
    layout: KvLayout
    blocks: int
    pool_fd: int
    max_model_len: int
    tier_fd: int | None = None  # the host tier; None: there is none
    number: int = 0

    @property
    def name(self) -> str:
        return f"c{self.number}"

    @property
    def host(self) -> str:
        """The host agent that may end its workers, and no others."""
        return f"local-{self.number}" if self.number else "local"

    @property
    def pool_fds(self) -> tuple[int, ...]:
        return (self.pool_fd,) if self.tier_fd is None else (self.pool_fd, self.tier_fd)

    @property
    def pool_bytes(self) -> int:
        return self.layout.pool_bytes(self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The settled values. Whoever makes one closes `pool_fds`: the memory of its cells."""

    options: UpOptions
    credentials: Credentials
    nats_port: int
    index_url: str
    gateway_port: int
    kernels: str  # settled: "native:<level>" or "torch"
    cores: int  # for each cell
    cell: Cell  # of the first model
    other_cells: tuple[Cell, ...] = ()  # one for each further model

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (self.cell, *self.other_cells)

    def cell_of(self, service: str, index: int) -> Cell:
        """Whose the process is: those of the first cell come first. The one gateway counts as the first cell's."""
        return self.cells[index // max(1, self.options.count(service))]

    @property
    def pool_fds(self) -> tuple[int, ...]:
        return tuple(fd for cell in self.cells for fd in cell.pool_fds)

    @property
    def nats_url(self) -> str:
        return f"nats://127.0.0.1:{self.nats_port}"

    @property
    def base_url(self) -> str:
        """Where a client on this machine reaches the API."""
        return f"http://{self._host}:{self.gateway_port}/v1"

    @property
    def grpc_address(self) -> str:
        """Likewise for gRPC; empty where no port is set."""
        return f"{self._host}:{self.options.grpc_port}" if self.options.grpc_port else ""

    @property
    def _host(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.options.host, self.options.host)
        return f"[{host}]" if ":" in host else host

    @property
    def role(self) -> str:
        """On two cores two busy processes fight: there the decode worker computes every prompt in its own batches."""
        small = self.cores <= SMALL_MACHINE_CORES
        return "hybrid" if self.options.role == "auto" and small else self.options.role


def settle(options: UpOptions, run_dir: RunDir) -> Stack:
    """Check the options against models and machine, and take the memory. Raises ConfigError for what cannot work."""
    models = [load_model_config(named.model_dir, options.max_model_len) for named in options.models]
    kernels = settle_kernels(options.kernels, [model.head_dim for model in models])
    check_dtype(kernels, options.dtype)
    gateway_port = usable_port(options.host, options.port)
    count, cores = len(options.models), len(os.sched_getaffinity(0))
    share_bytes = capacity.available_memory_bytes() // count
    first, *others = (_settle_cell(options, number, model, kernels, share_bytes) for number, model in enumerate(models))
    return Stack(
        options=options,
        credentials=Credentials.draw(),
        nats_port=free_port(besides=(gateway_port, options.grpc_port)),
        index_url=f"unix://{run_dir.valkey_socket}",
        gateway_port=gateway_port,
        kernels=kernels,
        cell=first,
        other_cells=tuple(others),
        cores=max(1, cores // count),
    )


def _settle_cell(options: UpOptions, number: int, model: ModelConfig, kernels: str, available_bytes: int) -> Cell:
    kv_dtype = kv_dtype_of(options.dtype)
    layout = model.kv_layout(options.block_tokens, kv_dtype, tile_tag(kernels, kv_dtype))
    max_model_len = capacity.context_tokens(model.max_position_tokens, options.max_model_len)
    blocks = capacity.pool_blocks(layout, options.kv_blocks, available_bytes)
    return Cell(
        number=number,
        model=options.models[number],
        layout=layout,
        blocks=blocks,
        pool_fd=create_pool(layout, blocks),
        max_model_len=max_model_len,
        tier_fd=_tier(options, layout),
    )


def _tier(options: UpOptions, layout: KvLayout) -> int | None:
    if not options.host_blocks:
        return None
    if options.host_tier is None:
        return create_pool(layout, options.host_blocks)
    return create_pool_at(options.host_tier, layout, options.host_blocks)
