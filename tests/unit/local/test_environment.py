"""What each service of a local stack is told."""

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from deploy.local.environment import WORKERS, service_environ
from deploy.local.options import SERVICES, NamedModel
from libs.runtime.config import load_config
from tests.unit.local.stacks import settled

LIFE = "0123456789abcdef" * 2


def config_of(service: str, environ: dict[str, str]) -> Any:
    return load_config(
        import_module(f"services.{service}.config").Config, prefix=f"HR_{service.upper()}_", environ=environ
    )


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_accepts_its_environment(service: str) -> None:
    """The service's own settings model takes every variable, and requires none that is not given."""
    config = config_of(service, service_environ(settled(), service, 0, LIFE))

    assert config.model == "m"
    assert config.nats_user == service


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_given_only_its_own_secrets(service: str) -> None:
    """No service can act as another one on the broker or the index."""
    stack = settled()
    environ = service_environ(stack, service, 0, LIFE)

    passwords = {**{f"nats {u}": p for u, p in stack.credentials.nats.items()}} | {
        f"index {u}": p for u, p in stack.credentials.index.items()
    }
    given = {name.split()[1] for name, password in passwords.items() if password in environ.values()}
    assert given == {service}


def test_workers_learn_pool_host_and_life() -> None:
    """A worker gets the pool's descriptor, and the name by which the host agent can end this life."""
    for service in WORKERS:
        config = config_of(service, service_environ(settled(prefill=2, decode=2), service, 1, LIFE))

        assert (config.pool, config.host, config.incarnation) == ("fd:7", "local", LIFE)
        assert config.instance == f"{service}-1"
        assert config.host_pool == ""


def test_workers_learn_where_the_host_tier_is() -> None:
    """Only where there is one."""
    stack = settled()
    stack = replace(stack, cell=replace(stack.cell, tier_fd=9))

    assert config_of("decode_worker", service_environ(stack, "decode_worker", 0, LIFE)).host_pool == "fd:9"
    assert stack.pool_fds == (7, 9)


def test_each_model_has_processes_of_its_own() -> None:
    """As many as the first, numbered on, in a cell and over a pool of its own; the one gateway knows all models."""
    more = (NamedModel("n", Path("/models/n"), ("large",)),)
    stack = settled(decode=2, more_models=more, aliases=("x",))

    workers = [config_of("decode_worker", service_environ(stack, "decode_worker", index, LIFE)) for index in range(4)]
    assert [(one.model, one.cell, one.host, one.pool) for one in workers] == [
        *[("m", "c0", "local", "fd:7")] * 2,
        *[("n", "c1", "local-1", "fd:17")] * 2,
    ]
    scheduler = config_of("scheduler", service_environ(stack, "scheduler", 1, LIFE))
    assert (scheduler.model, scheduler.cell) == ("n", "c1")
    gateway = config_of("gateway", service_environ(stack, "gateway", 0, LIFE))
    assert [(one.model, one.aliases) for one in gateway.models] == [("m", ("x",)), ("n", ("large",))]
    assert stack.pool_fds == (7, 17)


@pytest.mark.parametrize(
    ("cores", "asked", "given"),
    [(2, "auto", "hybrid"), (4, "auto", "auto"), (2, "disaggregated", "disaggregated"), (64, "hybrid", "hybrid")],
)
def test_two_cores_are_hybrid_unless_told_otherwise(cores: int, asked: str, given: str) -> None:
    """Auto means hybrid on a small machine; an explicit role stands."""
    environ = service_environ(settled(cores=cores, role=asked), "scheduler", 0, LIFE)

    assert environ["HR_SCHEDULER_ROLE"] == given


def test_a_setting_of_the_command_line_wins() -> None:
    """--set replaces what the supervisor would say, for that service alone."""
    stack = settled(overrides={"gateway": {"drain_s": "9"}})

    assert service_environ(stack, "gateway", 0, LIFE)["HR_GATEWAY_DRAIN_S"] == "9"
    assert service_environ(stack, "tokenizer", 0, LIFE)["HR_TOKENIZER_DRAIN_S"] != "9"


def test_credentials_are_drawn_anew_and_long() -> None:
    """No two stacks share a secret, and none can be guessed or shown by repr."""
    one, other = settled().credentials, settled().credentials

    assert not set(one.nats.values()) & set(other.nats.values())
    assert all(len(password) >= 32 for password in [*one.nats.values(), *one.index.values(), one.link_token])
    assert re.fullmatch("[0-9a-f]{64}", one.hash_key)
    assert one.link_token not in repr(one)


def test_workers_learn_which_kernels_were_settled() -> None:
    """The same ones as the pool's layout was made for; torch's threads are nobody else's business."""
    native = service_environ(settled(), "decode_worker", 0, LIFE)
    torch = service_environ(settled(kernels="torch"), "decode_worker", 0, LIFE)
    gateway = service_environ(settled(kernels="torch"), "gateway", 0, LIFE)

    assert [env["HR_DECODE_WORKER_KERNELS"] for env in (native, torch)] == ["native:avx2", "torch"]
    assert [env["OMP_NUM_THREADS"] for env in (native, torch, gateway)] == ["1", "8", "1"]


@pytest.mark.parametrize(
    ("role", "decode", "threads"),
    [("hybrid", 1, 4), ("auto", 2, 2), ("hybrid", 3, 1), ("hybrid", 8, 1), ("disaggregated", 1, 2)],
)
def test_workers_that_compute_at_once_share_the_cores(role: str, decode: int, threads: int) -> None:
    """Those of a role; where every prompt is handed over, those of both."""
    stack = settled(cores=4, decode=decode, role=role)
    config = config_of("decode_worker", service_environ(stack, "decode_worker", 0, LIFE))

    assert config.threads == threads
