"""`make compose-test`: a whole stack in containers, from no image to nothing left. Prints figures.

Needs a Docker engine, or root and dockerd to start one; exits 0 with a word where neither is there.
"""

import argparse
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from deploy.secrets import draw, write
from tests.compose.clients import CAPITAL, STORY, Doors, in_thread, load
from tests.compose.engine import NoEngine, engine, output
from tests.compose.project import FOLDER, OFFLINE, Project, kill
from tests.compose.scan import problems

NAME: Final = "headrace-test"
MODEL: Final = "SmolLM2-135M-Instruct"
LOGS: Final = Path(tempfile.gettempdir()) / "headrace-compose-test.log"
MEGABYTE: Final = 1_000_000
CONTROL_PLANE_BYTES: Final = 250 * MEGABYTE
WORKER_BYTES: Final = 1500 * MEGABYTE
READY_S: Final = 20.0
RECOVERY_S: Final = 60.0
STORY_TOKENS: Final = 160
STRIKE_AT: Final = 30  # chunks
CLIENTS: Final = 3
SCALED: Final = ("tokenizer", "prefill_worker", "decode_worker", "gateway", "scheduler")
SECOND_CELL: Final = ("pool_c1", "scheduler_c1", "prefill_worker_c1", "decode_worker_c1")
STRUCK: Final = ("decode_worker", "scheduler", "nats")
BUILT: Final = (
    "gateway",
    "tokenizer",
    "scheduler",
    "nats",
    "valkey",
    "proxy",
    "model",
    "pool",
    "prefill_worker",
    "decode_worker",
)

begun_s = time.monotonic()


def say(what: str) -> None:
    print(f"[{time.monotonic() - begun_s:6.1f} s] {what}", flush=True)


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"compose-test: {what}")


def until(holds: Callable[[], Any], within_s: float, what: str) -> float:
    """Seconds until it holds."""
    start_s = time.monotonic()
    while not holds():
        expect(time.monotonic() - start_s < within_s, f"not within {within_s:.0f} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - start_s


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build(project: Project, tag: str) -> None:
    """Every image, and how large it is."""
    project.run("build", *BUILT)
    for service in BUILT:
        size_bytes = int(output(["docker", "image", "inspect", "--format", "{{.Size}}", f"headrace/{service}:{tag}"]))
        limit_bytes = (
            WORKER_BYTES if service in ("pool", "model") or service.endswith("worker") else CONTROL_PLANE_BYTES
        )
        say(f"image {service}: {size_bytes / MEGABYTE:.0f} MB")
        expect(size_bytes <= limit_bytes, f"{service} is larger than {limit_bytes / MEGABYTE:.0f} MB")


def start(project: Project, doors: Doors) -> None:
    """Once to fill the volumes, then as it is every other time."""
    project.up()
    say(f"up for the first time, ready {until(doors.ready, RECOVERY_S, 'ready'):.1f} s later")
    project.run("down")
    start_s = time.monotonic()
    project.up()
    until(doors.ready, RECOVERY_S, "ready")
    took_s = time.monotonic() - start_s
    say(f"start to ready: {took_s:.1f} s")
    for service in BUILT:
        if service != "model":
            until_well(project, service, 1)
    expect(took_s <= READY_S, f"a start takes more than {READY_S:.0f} s")


def serve(doors: Doors) -> None:
    text, ids = doors.chat(CAPITAL, 24)
    say(f"chat: {text!r}")
    expect("Paris" in text and bool(ids), "the model does not know the capital of France")
    over_grpc, grpc_ids = doors.chat_grpc(CAPITAL, 24)
    expect(over_grpc == text, f"over gRPC it answers {over_grpc!r}")
    expect(grpc_ids == ids, "over gRPC the ids differ")


def scale(project: Project, doors: Doors) -> None:
    """Each service to two and back to one under load."""
    for count in (2, 1):
        for service in SCALED:
            with load(doors, CLIENTS) as seen:
                project.up(**{service: count})
                until_well(project, service, count)
                time.sleep(1.0)
            say(f"{service} scaled to {count}: {seen.done} requests, longest {seen.longest_s:.1f} s")
            expect(not seen.failures, f"{len(seen.failures)} requests failed: {seen.failures[:3]}")


def until_well(project: Project, service: str, count: int) -> None:
    """As many containers as that, all of them healthy."""
    until(lambda: _all_well(project, service, count), RECOVERY_S, f"{count} {service} well")


def _all_well(project: Project, service: str, count: int) -> bool:
    states = [container["State"] for container in project.containers(service)]
    well = [state for state in states if state["Running"] and state["Health"]["Status"] == "healthy"]
    return len(well) == len(states) == count


def strike(project: Project, doors: Doors) -> None:
    """Kill one container of a kind in the middle of a stream: it ends with the ids that it has without."""
    _, expected = doors.chat(STORY, STORY_TOKENS)
    expect(len(expected) == STORY_TOKENS, f"the story has {len(expected)} tokens")
    for service in STRUCK:
        victim = project.containers(service)[0]
        blow = Blow(victim)
        _, ids = doors.chat(STORY, STORY_TOKENS, blow)
        blow.land()
        expect(ids == expected, f"after the death of a {service} the ids differ")
        until_restarted(project, victim)
        until_well(project, service, 1)
        say(f"{service} killed in a stream: ids equal, longest wait {blow.longest_s:.1f} s")
        expect(doors.chat(STORY, STORY_TOKENS)[1] == expected, f"after the restart of {service} the ids differ")


class Blow:
    """Hears of each chunk of a stream, measures its longest wait, and kills a container in its midst."""

    def __init__(self, victim: dict[str, Any]) -> None:
        self._victim, self._last_s = victim, time.monotonic()
        self.longest_s = 0.0
        self.land: Callable[[], Any] = lambda: expect(False, f"a stream ended before {STRIKE_AT} chunks")

    def __call__(self, count: int) -> None:
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        if count == STRIKE_AT:
            self.land = in_thread(lambda: kill(self._victim))


def until_restarted(project: Project, victim: dict[str, Any]) -> None:
    """The engine has started this container again."""
    until(lambda: _restarted(project, victim), RECOVERY_S, f"{victim['Name']} restarted")


def _restarted(project: Project, victim: dict[str, Any]) -> bool:
    return any(
        one["Id"] == victim["Id"] and one["State"]["Running"] and one["State"]["Pid"] != victim["State"]["Pid"]
        for one in project.containers()
    )


def second_cell(project: Project, doors: Doors) -> None:
    """Comes up beside the first, leads its own workers, and disturbs nobody."""
    with load(doors, CLIENTS) as seen:
        project.up()
        for service in SECOND_CELL:
            until_well(project, service, 1)
    expect(not seen.failures, f"{len(seen.failures)} requests failed beside a new cell: {seen.failures[:3]}")
    say(f"a second cell beside the first, under load: {seen.done} requests")


def stop(project: Project) -> None:
    start_s = time.monotonic()
    project.run("down", "--volumes", "--remove-orphans")
    say(f"down in {time.monotonic() - start_s:.1f} s")
    expect(not (left := project.leftovers()), f"down leaves {left}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="compose-test")
    parser.add_argument("--online", action="store_true", help="build on the public base image, not on debootstrap's")
    parser.add_argument("--no-build", action="store_true", help="with the images that are there")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-compose-"))
    doors = Doors(free_port(), free_port(), "", MODEL)
    try:
        with engine():
            write(folder / "secrets", draw())
            doors = Doors(doors.port, doors.grpc_port, (folder / "secrets" / "api_key").read_text(), MODEL)
            _run(arguments, doors, folder / "secrets")
    except NoEngine as error:
        print(f"compose-test is left out: {error}")
    finally:
        shutil.rmtree(folder)


def _run(arguments: argparse.Namespace, doors: Doors, secrets: Path) -> None:
    tag = "test"
    variables = {
        "HEADRACE_TAG": tag,
        "HEADRACE_SECRETS": str(secrets),
        "HEADRACE_PORT": str(doors.port),
        "HEADRACE_GRPC_PORT": str(doors.grpc_port),
        "HEADRACE_KV_BLOCKS": "1024",
    }
    if not arguments.online:
        if not arguments.no_build:
            subprocess.run([FOLDER / "offline" / "images.sh"], check=True, env=None)
            say("base images are there")
        variables |= OFFLINE
    project = Project(NAME, variables)
    both = Project(NAME, variables, "compose.yaml", "compose.cell2.yaml")
    both.run("down", "--volumes", "--remove-orphans")
    if not arguments.no_build:
        build(project, tag)
    try:
        start(project, doors)
        serve(doors)
        strike(project, doors)
        found = problems(project, secrets)
        expect(not found, "\n  ".join(("the running stack has faults:", *found)))
        say("the running stack has no root, no capability, no foreign listener, and brokers that refuse")
        scale(project, doors)
        second_cell(both, doors)
    except BaseException:
        LOGS.write_text(project.run("logs", "--no-color"))
        say(f"the containers' logs: {LOGS}")
        raise
    finally:
        stop(both)
    say("compose-test passed")


if __name__ == "__main__":
    main()
