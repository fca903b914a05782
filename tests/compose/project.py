"""One compose project of ours: its files, its variables, its containers."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.compose.engine import compose_command, output

FOLDER = Path(__file__).parents[2] / "deploy"
PREFIX = "headrace-offline"
OFFLINE = {
    "BASE_IMAGE": f"{PREFIX}/base",
    "PROXY_IMAGE": f"{PREFIX}/proxy",
    "BUILD_IMAGE": f"{PREFIX}/build",
}


class Project:
    """`files` lie in deploy/; `variables` are those that they name."""

    def __init__(self, name: str, variables: dict[str, str], *files: str) -> None:
        self.name = name
        self.scale: dict[str, int] = {}
        self._command = [*compose_command(), "--project-name", name]
        for file in files or ("compose.yaml",):
            self._command += ["--file", str(FOLDER / file)]
        self._environ = {**os.environ, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0", **variables}

    def run(self, *arguments: str) -> str:
        """What a subcommand prints; its progress is shown only when it fails."""
        done = subprocess.run(
            [*self._command, *arguments], env=self._environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"compose {' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def up(self, **scale: int) -> None:
        """Start what does not run, with so many of each service from now on."""
        self.scale |= scale
        numbers = [word for service, count in self.scale.items() for word in ("--scale", f"{service}={count}")]
        self.run("up", "--detach", "--no-build", "--no-recreate", *numbers)

    def containers(self, service: str = "") -> list[dict[str, Any]]:
        """What the engine knows of the containers of a service, or of all, ended ones too."""
        label = f"label=com.docker.compose.project={self.name}"
        ids = output(["docker", "ps", "--all", "--quiet", "--filter", label]).split()
        found: list[dict[str, Any]] = json.loads(output(["docker", "inspect", *ids])) if ids else []
        return [one for one in found if service in ("", service_of(one))]

    def leftovers(self) -> list[str]:
        """Names of containers, volumes and networks of this project."""
        label = f"label=com.docker.compose.project={self.name}"
        kinds: dict[str, Sequence[str]] = {
            "container": ("ps", "--all", "--format", "{{.Names}}"),
            "volume": ("volume", "ls", "--format", "{{.Name}}"),
            "network": ("network", "ls", "--format", "{{.Name}}"),
        }
        return [
            f"{kind} {name}"
            for kind, words in kinds.items()
            for name in output(["docker", *words, "--filter", label]).split()
        ]


def service_of(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def kill(container: dict[str, Any]) -> None:
    """SIGKILL to its first process from outside: the engine starts it again, as after any accident."""
    pid = container["State"]["Pid"]
    code = f"import os; os.kill({pid}, 9)"
    image = ["--entrypoint", "python3", container["Image"], "-c", code]
    output(["docker", "run", "--rm", "--pid=host", "--user=0", "--network=none", *image])
