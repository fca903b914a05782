"""Looks over a running stack for what no container should have: root, rights, a writable root, tools, listeners.

And whether its brokers refuse each user what is another's.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from libs.contracts.flow import PERMISSIONS
from libs.runtime.prefix_library import USERS as INDEX_USERS
from tests.compose.engine import output
from tests.compose.project import Project, service_of

LISTENERS = {"proxy": {8000, 50051}, "gateway": {8000, 50051}, "nats": {4222}, "valkey": {6379}}
ONE_PORT_OF_ITS_OWN = "scheduler"  # where workers dial, drawn at start
ENGINES_NAME_SERVER = "0B00007F"  # 127.0.0.11 in /proc/net/tcp
LISTEN = "0A"
LOOK = """
import json, shutil
facts = dict(line.split(":\\t", 1) for line in open("/proc/1/status").read().splitlines() if ":\\t" in line)
rows = [row.split() for name in ("tcp", "tcp6") for row in open(f"/proc/net/{name}").read().splitlines()[1:]]
try:
    open("/written", "w")
    written = True
except OSError:
    written = False
print(json.dumps({"facts": facts, "rows": [(row[1], row[3]) for row in rows], "written": written,
    "tools": [tool for tool in ("cc", "gcc", "g++", "make", "pip", "pip3", "curl", "wget") if shutil.which(tool)]}))
"""


def problems(project: Project, secrets: Path) -> list[str]:
    """Everything that is wrong, in words."""
    running = [container for container in project.containers() if container["State"]["Running"]]
    found = [problem for container in running for problem in _of_container(container)]
    return found + _of_brokers(project, secrets)


def _of_container(container: dict[str, Any]) -> Iterator[str]:
    name = container["Name"].lstrip("/")
    seen = json.loads(output(["docker", "exec", container["Id"], "python3", "-S", "-I", "-c", LOOK]))
    facts, host = seen["facts"], container["HostConfig"]
    wrong = {
        "runs as root": "0" in facts["Uid"].split(),
        "has capabilities": any(int(facts[kind], 16) for kind in ("CapEff", "CapPrm", "CapBnd")),
        "may gain privileges": facts["NoNewPrivs"].strip() != "1",
        "can write to its root": seen["written"],
        f"has tools to build or fetch with: {seen['tools']}": bool(seen["tools"]),
        "is part of the host": host["Privileged"] or host["PidMode"] == "host" or host["NetworkMode"] == "host",
    }
    yield from (f"{name} {what}" for what, holds in wrong.items() if holds)
    ports = {
        int(place.rpartition(":")[2], 16) for place, state in seen["rows"] if state == LISTEN and not _engines(place)
    }
    if not _are_due(service_of(container), ports):
        yield f"{name} listens at {sorted(ports)}"


def _are_due(service: str, ports: set[int]) -> bool:
    return len(ports) == 1 if service == ONE_PORT_OF_ITS_OWN else ports == LISTENERS.get(service, set())


def _engines(place: str) -> bool:
    return place.partition(":")[0] == ENGINES_NAME_SERVER


def _of_brokers(project: Project, secrets: Path) -> list[str]:
    orders = {
        "nats": {user: (secrets / f"nats_{user}").read_text() for user in PERMISSIONS},
        "index": {user: (secrets / f"index_{user}").read_text() for user in INDEX_USERS},
    }
    image = project.containers("scheduler")[0]["Image"]
    code = Path(__file__).with_name("intruder.py").read_text()
    command = ["docker", "run", "--rm", "--interactive", f"--network={project.name}_inner", image, "-c", code]
    found: list[str] = json.loads(output(command, input=json.dumps(orders)))
    return found
