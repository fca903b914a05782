"""Looks over a running stack for what no container should have: root, a writable root, capabilities, build tools, listeners.

And whether its brokers refuse each user what is another's.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from libs.contracts.flow import PERMISSIONS
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
    service, name = service_of(container), container["Name"].lstrip("/")
    seen = json.loads(output(["docker", "exec", container["Id"], "python3", "-S", "-I", "-c", LOOK]))
    facts = seen["facts"]
    if "0" in facts["Uid"].split():
        yield f"{name} runs as root"
    for kind in ("CapEff", "CapPrm", "CapBnd"):
        if int(facts[kind], 16):
            yield f"{name} has capabilities: {kind} {facts[kind]}"
    if facts["NoNewPrivs"].strip() != "1":
        yield f"{name} may gain privileges"
    if seen["written"]:
        yield f"{name} can write to its root"
    if seen["tools"]:
        yield f"{name} has tools to build or fetch: {seen['tools']}"
    if container["HostConfig"]["Privileged"] or container["HostConfig"]["PidMode"] == "host":
        yield f"{name} is part of the host"
    ports = {
        int(place.rpartition(":")[2], 16) for place, state in seen["rows"] if state == LISTEN and not _engines(place)
    }
    if service == ONE_PORT_OF_ITS_OWN:
        if len(ports) != 1:
            yield f"{name} listens at {sorted(ports)}, and not at one port"
    elif ports != LISTENERS.get(service, set()):
        yield f"{name} listens at {sorted(ports)}"


def _engines(place: str) -> bool:
    return place.partition(":")[0] == ENGINES_NAME_SERVER


def _of_brokers(project: Project, secrets: Path) -> list[str]:
    orders = {
        "nats": {user: (secrets / f"nats_{user}").read_text() for user in PERMISSIONS},
        "index": {user: (secrets / f"index_{user}").read_text() for user in ("tokenizer", "scheduler", "supervisor")},
    }
    image = project.containers("scheduler")[0]["Image"]
    code = Path(__file__).with_name("intruder.py").read_text()
    command = ["docker", "run", "--rm", "--interactive", f"--network={project.name}_inner", image, "-c", code]
    found: list[str] = json.loads(output(command, input=json.dumps(orders)))
    return found
