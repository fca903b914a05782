"""The compose files: what each service is told is what its settings are, and what no container may have it has not."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.secrets import draw
from libs.contracts.flow import PERMISSIONS
from libs.runtime.config import ServiceConfig, load_config

FOLDER = Path(__file__).parents[3] / "deploy"
OURS = ("compose.yaml", "compose.cell2.yaml")
CONFIGS = {"pool": "deploy.pool.config"}  # the others': services.<name>.config
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def services(file: str) -> dict[str, dict[str, Any]]:
    content = yaml.safe_load(VARIABLE.sub(r"\2", (FOLDER / file).read_text(encoding="utf-8")))
    found: dict[str, dict[str, Any]] = content["services"]
    return found


def kind(service: str) -> str:
    return service.removesuffix("_c1")


CONFIGURED = [(file, name) for file in OURS for name, service in services(file).items() if "environment" in service]


@pytest.mark.parametrize(("file", "name"), CONFIGURED)
def test_a_service_starts_with_what_it_is_told(file: str, name: str, tmp_path: Path) -> None:
    """No variable is unknown or missing; each secret is one that is drawn, and is mounted."""
    service = services(file)[name]
    drawn = draw()
    for secret in service["secrets"]:
        (tmp_path / secret).write_text(drawn[secret])
    environ = {key: str(value).replace("/run/secrets", str(tmp_path)) for key, value in service["environment"].items()}
    module = import_module(CONFIGS.get(kind(name), f"services.{kind(name)}.config"))
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    (config,) = (one for one in own if issubclass(one, ServiceConfig))

    loaded = load_config(config, prefix=f"HR_{kind(name).upper()}_", environ=environ)

    assert loaded.nats_user in PERMISSIONS and loaded.nats_user == kind(name)
    assert loaded.nats_password.get_secret_value() == drawn[f"nats_{kind(name)}"]
    assert loaded.health_file
    assert all(key.startswith(f"HR_{kind(name).upper()}_") for key in environ)


@pytest.mark.parametrize("file", [path.name for path in sorted(FOLDER.glob("compose*.yaml"))])
def test_no_container_has_more_than_it_needs(file: str) -> None:
    """No writable root, no capability, no port beside the door's; what is public is so for this machine alone."""
    for name, service in services(file).items():
        if "image" not in service:  # adds to another file's
            continue
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service and service.get("pid") != "host", name
        assert service["mem_limit"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert name in ("proxy", "jaeger", "grafana") or "ports" not in service, name


def test_only_the_gateway_is_on_both_networks() -> None:
    """The proxy does not reach the brokers, and nothing inside reaches out."""
    content = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))

    assert content["networks"]["inner"] == {"internal": True}
    assert {name for name, service in content["services"].items() if "outer" in service["networks"]} == {
        "proxy",
        "gateway",
    }
    assert content["services"]["proxy"]["networks"] == ["outer"]


def test_both_cells_are_made_alike() -> None:
    """The second differs in its names alone."""
    first, second = services(OURS[0]), services(OURS[1])
    assert set(second) == {f"{name}_c1" for name in ("scheduler", "prefill_worker", "decode_worker", "pool")}
    for name, service in second.items():
        said = yaml.safe_dump(service).replace("pool_c1", "pool").replace("pool-c1", "pool-c0")
        assert yaml.safe_load(said.replace("CELL: c1", "CELL: c0")) == first[kind(name)], name


def test_every_image_has_a_target_of_its_own() -> None:
    """What compose builds, the Dockerfile has."""
    stages = re.findall(r"^FROM \S+ AS (\S+)$", (FOLDER / "images" / "Dockerfile").read_text(encoding="utf-8"), re.M)
    built = {name: service["build"]["target"] for name, service in services("compose.yaml").items()}

    assert all(name == target for name, target in built.items())
    assert set(built.values()) <= set(stages)


def test_what_runs_in_the_control_planes_image_takes_nothing_of_the_worker() -> None:
    """Its image has no engine, no kernels and no numpy."""
    code = "import sys, deploy.containers.valkey, deploy.containers.model, deploy.secrets; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"libs.engine", "kernels", "numpy", "gguf", "torch"} & set(loaded)
