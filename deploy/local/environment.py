"""The environment of each service's process: its settings and nothing else. Pure."""

import json
import os
from typing import Final

from deploy.local.run_dir import RunDir
from deploy.local.stack import Cell, Stack
from libs.engine.kernel_choice import TORCH

WORKERS: Final = ("prefill_worker", "decode_worker")
SPIN_COUNT: Final = 10_000  # a third of a millisecond: over the gaps inside a step, not between steps; ADR 0004
DRAIN_S: Final = 1.5  # leaves the supervisor room to stop everything within 5 s


def service_environ(stack: Stack, service: str, index: int, incarnation: str) -> dict[str, str]:
    """Variables of the process `index` of `service` in the life `incarnation`."""
    settings = {
        "nats_url": stack.nats_url,
        "nats_user": service,
        "nats_password": stack.credentials.nats[service],
        "drain_s": str(DRAIN_S),
        "failpoints_file": stack.options.failpoints_file,
        "trace_dir": str(RunDir(stack.options.run_dir).trace_dir(f"{service}-{index}")),
        **_own_settings(stack, stack.cell_of(service, index), service),
        **stack.options.overrides.get(service, {}),
    }
    threads = _engine_threads(stack, service)
    if service in WORKERS:
        settings = {"threads": str(threads), "instance": f"{service}-{index}", "incarnation": incarnation} | settings
    prefix = f"HR_{service.upper()}_"
    return {
        "LANG": "C.UTF-8",
        "PATH": os.defpath,
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **_openmp(threads if service in WORKERS and stack.kernels == TORCH else 1),
        **{f"{prefix}{key.upper()}": value for key, value in settings.items()},
    }


def _openmp(threads: int) -> dict[str, str]:
    """Torch computes with these threads. Native kernels bring a team of their own, and nobody else needs any."""
    return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": str(SPIN_COUNT)}


def _engine_threads(stack: Stack, service: str) -> int:
    """A cell's cores, shared by the workers that compute at the same time: those of a role, where every prompt is
    handed over those of both. More threads than cores would wait for each other in every operation.
    """
    if service not in WORKERS:
        return 1
    busy = WORKERS if stack.role == "disaggregated" else (service,)
    return max(1, stack.cores // sum(map(stack.options.count, busy)))


def _own_settings(stack: Stack, cell: Cell, service: str) -> dict[str, str]:
    options = stack.options
    common = {"model": cell.model.name}
    if service == "scheduler":
        return (
            common
            | _index(stack, service)
            | {
                "cell": cell.name,
                "link_token": stack.credentials.link_token,
                "role": stack.role,
            }
        )
    common |= {"model_dir": str(cell.model.model_dir), "max_model_len": str(cell.max_model_len)}
    if service == "tokenizer":
        return common | _index(stack, service) | {"hash_key": stack.credentials.hash_key}
    if service == "gateway":
        return (
            common
            | _further_models(stack)
            | _index(stack, service)
            | {
                "host": options.host,
                "port": str(stack.gateway_port),
                "api_key": options.api_key,
            }
        )
    return common | {
        "cell": cell.name,
        "host": cell.host,
        "link_token": stack.credentials.link_token,
        "dtype": options.dtype,
        "block_tokens": str(options.block_tokens),
        "pool": f"fd:{cell.pool_fd}",
        "host_pool": "" if cell.tier_fd is None else f"fd:{cell.tier_fd}",
        "kernels": stack.kernels,
        "packed_dir": str(options.packed_dir or ""),
    }


def _further_models(stack: Stack) -> dict[str, str]:
    """What the gateway serves beside the first model, and under which other names that one."""
    more = [
        {
            "model": cell.model.name,
            "model_dir": str(cell.model.model_dir),
            "max_model_len": cell.max_model_len,
            "aliases": cell.model.aliases,
        }
        for cell in stack.other_cells
    ]
    return {"aliases": ",".join(stack.cell.model.aliases), "more_models": json.dumps(more)}


def _index(stack: Stack, service: str) -> dict[str, str]:
    return {
        "redis_url": stack.index_url,
        "redis_user": service,
        "redis_password": stack.credentials.index[service],
    }
