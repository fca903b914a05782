"""Logs: an event name and fields, one line each on stderr, as JSON or as text."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

RARELY_S = 60.0
_FIELDS = "headrace_fields"


class Log:
    """A named log. `exc_info` in `error` adds the current exception's traceback."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, *, exc_info: bool | BaseException = False, **fields: object) -> None:
        self._log(logging.ERROR, event, fields, exc_info=exc_info)

    def _log(self, level: int, event: str, fields: dict[str, object], exc_info: bool | BaseException = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={_FIELDS: fields}, exc_info=exc_info)


def get_logger(name: str) -> Log:
    return Log(name)


def setup_logs(level: str = "info", form: str = "json", **always: str) -> None:
    """Send this process's logs to stderr; `always` (service, instance) is in every line. May be called again."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(always) if form == "json" else _TextFormatter(always))
    handler.addFilter(_Rarely("opentelemetry"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("nats", "grpc", "asyncio", "opentelemetry", "urllib3", "redis"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


class _Rarely(logging.Filter):
    """Passes a library's message of one kind once in RARELY_S: a collector that is away must not fill the log."""

    def __init__(self, library: str) -> None:
        super().__init__()
        self._library = library
        self._next_s: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(self._library):
            return True
        kind = (record.name, record.levelno)
        if record.created < self._next_s.get(kind, 0.0):
            return False
        self._next_s[kind] = record.created + RARELY_S
        return True


class _Formatter(logging.Formatter):
    def __init__(self, always: dict[str, str]) -> None:
        super().__init__()
        self._always = always

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "log": record.name,
            "event": record.getMessage(),
            **self._always,
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return fields


class _JsonFormatter(_Formatter):
    """JSON escapes control characters, so a field's value can never fake a line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self._fields(record), default=str)


class _TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = self._fields(record)
        head = f"{fields.pop('time')[11:23]} {fields.pop('level'):<7} {fields.pop('log')}: {fields.pop('event')}"
        traceback = fields.pop("traceback", None)
        line = " ".join(
            [_escaped(head), *(f"{name}={json.dumps(value, default=str)}" for name, value in fields.items())]
        )
        return f"{line}\n{traceback}" if traceback else line


def _escaped(text: str) -> str:
    return json.dumps(text)[1:-1]
