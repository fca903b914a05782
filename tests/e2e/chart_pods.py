"""The chart's pods as processes of this machine: rendered by Helm, each container with its own variables and volumes.

What a cluster gives to a pod is given here: an address, a name, an index, mounted secrets, memory to share. Paths and
ports that would collide between the pods of one machine are exchanged for others; nothing else is.
"""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.images import health
from deploy.local.nats_server import find_nats_server
from deploy.local.network import free_port
from deploy.local.valkey_server import find_valkey_server
from tests.unit.deploy.helm import ROOT, Manifest, render
from tests.unit.deploy.manifests import containers, environment, of_kind

MODULES = {"pool": "deploy.pool"}  # the others': services.<name>
BROKERS = ("nats", "valkey")
INDEX = re.compile(r"-\d+$")
REFERENCE = re.compile(r"\$\((\w+)\)")
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Pod:
    """One pod: its containers' processes by name, in memory-backed volumes of its own."""

    name: str
    template: dict[str, Any]
    folder: Path
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def kill(self) -> None:
        """All of it at once, as with its node; what it shared is gone."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        shutil.rmtree(self.folder)


class Pods:
    """Those of one release. `stop` ends all of them."""

    def __init__(self, values: Mapping[str, Any], models: Path, folder: Path) -> None:
        self.manifests = render(values)
        self.ports = {"nats": free_port(), "valkey": free_port(), "gateway": free_port()}
        self.folder, self._models = folder, models
        self._memory = Path(tempfile.mkdtemp(prefix="pods-", dir=SHARED_MEMORY))
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        for name, content in secret_of(self.manifests).items():
            (self.secrets / name).write_text(self._exchanged(content))
        self.pods: dict[str, Pod] = {}

    def start(self, workload: str, index: int = 0) -> Pod:
        """A pod of a workload, all its containers in order."""
        (manifest,) = (
            each
            for each in of_kind(self.manifests, "Deployment", "StatefulSet")
            if each["metadata"]["name"] == workload
        )
        volume = Path(tempfile.mkdtemp(prefix=f"{workload}-", dir=self._memory))
        name = f"{workload}-{index}"
        pod = self.pods[name] = Pod(name, manifest["spec"]["template"], volume)
        for container in containers(pod.template):
            if container["name"] != "model":
                self.run(pod, container)
        return pod

    def run(self, pod: Pod, container: Mapping[str, Any]) -> None:
        """Start a container; one that others of its pod wait for is ready when this returns."""
        name = container["name"]
        log = (self.folder / f"{pod.name}.{name}.log").open("ab")
        service = INDEX.sub("", name).replace("-", "_")
        argv = (
            self._broker(service)
            if service in BROKERS
            else [sys.executable, "-m", MODULES.get(service, f"services.{service}")]
        )
        environ = {"PATH": os.defpath, "LANG": "C.UTF-8", **self._environment(pod, container)}
        pod.processes[name] = subprocess.Popen(argv, env=environ, cwd=ROOT, stdout=log, stderr=log)
        log.close()
        if container.get("restartPolicy") == "Always":
            self.await_health(pod, name)

    def await_health(self, pod: Pod, container: str, within_s: float = 60.0) -> None:
        """Until its readiness probe would pass."""
        end_s = time.monotonic() + within_s
        while problem := health.problem("ready", str(self._health(pod, container))):
            assert pod.processes[container].poll() is None, f"{pod.name}: {container} has ended, see {self.folder}"
            assert time.monotonic() < end_s, f"{pod.name}: {container} is not ready: {problem}"
            time.sleep(0.05)

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            living = [each for pod in self.pods.values() for each in pod.processes.values() if each.poll() is None]
            for process in living:
                process.send_signal(number)
            end_s = time.monotonic() + 8.0
            for process in living:
                try:
                    process.wait(max(0.0, end_s - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue
        shutil.rmtree(self._memory)

    def _environment(self, pod: Pod, container: Mapping[str, Any]) -> dict[str, str]:
        field_of = {
            "metadata.name": pod.name,
            "status.podIP": "127.0.0.1",
            "metadata.labels['apps.kubernetes.io/pod-index']": INDEX.findall(pod.name)[0][1:],
        }
        env = {
            name: value if isinstance(value, str) else field_of[value["fieldRef"]["fieldPath"]]
            for name, value in environment(dict(container)).items()
        }
        own = {
            "/tmp/health": str(self._health(pod, container["name"])),
            "/pool/": f"{pod.folder}/",
            "/packed": str(self.folder),
        }
        told = {}
        for name, value in env.items():
            value = REFERENCE.sub(lambda match: env[match[1]], value)
            for path, other in own.items():
                value = value.replace(path, other)
            told[name] = self._exchanged(value)
        if "HR_SCHEDULER_LINK_PORT" in told:
            told["HR_SCHEDULER_LINK_PORT"] = str(free_port())
        if "HR_GATEWAY_PORT" in told:
            told |= {"HR_GATEWAY_PORT": str(self.ports["gateway"]), "HR_GATEWAY_HOST": "127.0.0.1"}
        return told

    def _exchanged(self, text: str) -> str:
        """With what this machine has in the place of a cluster's names, ports and volumes."""
        for old, new in {
            "headrace-nats:4222": f"127.0.0.1:{self.ports['nats']}",
            "headrace-valkey:6379": f"127.0.0.1:{self.ports['valkey']}",
            "0.0.0.0:4222": f"127.0.0.1:{self.ports['nats']}",
            "port 6379": f"port {self.ports['valkey']}",
            "bind * -::*": "bind 127.0.0.1",
            "/run/secrets": str(self.secrets),
            "/models": str(self._models),
            "/store": str(self.folder / "store"),
        }.items():
            text = text.replace(old, new)
        return text

    def _health(self, pod: Pod, container: str) -> Path:
        return pod.folder / f"health-{container}"

    def _broker(self, service: str) -> list[str]:
        if service == "nats":
            return [str(find_nats_server()), "--config", str(self.secrets / "nats.conf")]
        return [str(find_valkey_server()), str(self.secrets / "valkey.conf")]


def secret_of(manifests: tuple[Manifest, ...]) -> dict[str, str]:
    (secret,) = of_kind(manifests, "Secret")
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


@contextmanager
def running(values: Mapping[str, Any], models: Path, folder: Path) -> Iterator[Pods]:
    pods = Pods(values, models, folder)
    try:
        yield pods
    finally:
        pods.stop()
