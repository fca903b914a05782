"""Whether what runs in this container is well, as an exit code: `health.py ready|alive [FILE]`, `health.py port N`.

A service rewrites its health file every second: "ready", or why it is not. One that stands still does not. Needs the
standard library alone, and starts in 20 ms.
"""

import os
import socket
import sys
import time

HEALTH_FILE = "/tmp/health"
STALE_S = 5.0
CONNECT_TIMEOUT_S = 2.0


def problem(question: str, argument: str) -> str:
    """What is wrong, or ""."""
    try:
        if question == "port":
            socket.create_connection(("127.0.0.1", int(argument)), CONNECT_TIMEOUT_S).close()
            return ""
        path = argument or HEALTH_FILE
        with open(path, encoding="utf-8") as file:
            said = file.read()
        age_s = time.time() - os.stat(path).st_mtime
    except OSError as error:
        return str(error)
    if age_s > STALE_S:
        return f"said nothing for {age_s:.0f} s"
    return "" if question == "alive" or said == "ready" else said


if __name__ == "__main__":
    found = problem(sys.argv[1], "".join(sys.argv[2:]))
    sys.stderr.write(f"{found}\n" * bool(found))
    sys.exit(bool(found))
