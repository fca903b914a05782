"""One request's way through the services: every name on the wire, and every edge its trace must show.

README.md draws HOPS; a test compares real spans with it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

REQUESTS_STREAM = "requests"
SEQUENCES_STREAM = "sequences"
DEAD_LETTERS_STREAM = "dead_letters"
TOKENIZERS_CONSUMER = "tokenizers"
CELLS_BUCKET = "cells"
CELLS_CHANGED = "cells.>"  # the bucket's stream republishes each stored record there
STATUS_SUBJECT = "status"
METRICS_SUBJECT = "metrics"
PROFILE_SUBJECT = "profile"
REQUESTS_SUBJECTS = "requests.*"  # of every model
SEQUENCES_SUBJECTS = "sequences.*.*"  # of every cell
DEAD_LETTERS_SUBJECTS = "dead.*.*"  # of every cell
ALIVE_SUBJECTS = "alive.*"  # of every gateway
TRACEPARENT_HEADER = "traceparent"
INBOX_PREFIX = "_INBOX."  # a whole token before the service: wildcards match whole tokens only

ALIVE_INTERVAL_S = 0.25
GATEWAY_SILENCE_S = 1.0
TOKENIZER_ACK_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Hop:
    """A span, the span that causes it, and what carries the trace context between them."""

    span: str
    parent: str | None
    over: str


GATEWAY_REQUEST = "gateway.request"
TOKENIZE = "tokenizer.tokenize"
SCHEDULE = "scheduler.schedule"
PREFILL = "prefill_worker.prefill"
DECODE = "decode_worker.decode"
DELIVER = "gateway.deliver"

HOPS = (
    Hop(GATEWAY_REQUEST, None, "HTTP"),
    Hop(TOKENIZE, GATEWAY_REQUEST, "JetStream requests.<model>"),
    Hop(SCHEDULE, TOKENIZE, "JetStream sequences.<model>.<cell>"),
    Hop(PREFILL, SCHEDULE, "gRPC WorkerLink.Attach"),
    Hop(DECODE, SCHEDULE, "gRPC WorkerLink.Attach"),
    Hop(DELIVER, PREFILL, "NATS tokens.<gateway>"),
    Hop(DELIVER, DECODE, "NATS tokens.<gateway>"),
)


def edges(*, disaggregated: bool) -> frozenset[tuple[str | None, str]]:
    """(parent, span) pairs of one request of two tokens or more; hybrid requests never see a prefill worker."""
    return frozenset((hop.parent, hop.span) for hop in HOPS if disaggregated or PREFILL not in (hop.span, hop.parent))


@lru_cache(256)  # one is asked for with each frame
def subject_token(name: str) -> str:
    """`name` as one token of a subject: dots, spaces and wildcards become underscores."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def requests_subject(model: str) -> str:
    return f"requests.{subject_token(model)}"


def tokenize_subject(model: str) -> str:
    return f"tokenize.{subject_token(model)}"


def sequences_subject(model: str, cell: str) -> str:
    return f"sequences.{subject_token(model)}.{subject_token(cell)}"


def dead_letters_subject(model: str, cell: str) -> str:
    return f"dead.{subject_token(model)}.{subject_token(cell)}"


def cell_key(model: str, cell: str) -> str:
    return f"{subject_token(model)}.{subject_token(cell)}"


def term_consumer(model: str, cell: str, term: int) -> str:
    """The scheduler's consumer of one reign; a later one of the same cell takes its place."""
    return f"{subject_token(model)}-{subject_token(cell)}-term-{term}"


def consumer_term(consumer: str) -> int:
    """The term in a consumer's name; 0 for one of no reign."""
    found = re.search(r"-term-(\d+)$", consumer)
    return int(found[1]) if found else 0


def control_subject(cell: str) -> str:
    return f"control.{subject_token(cell)}"


def tokens_subject(gateway: str) -> str:
    return f"tokens.{subject_token(gateway)}"


def replies_subject(gateway: str) -> str:
    return f"replies.{subject_token(gateway)}"


def alive_subject(gateway: str) -> str:
    return f"alive.{subject_token(gateway)}"


def host_subject(host: str) -> str:
    return f"host.{subject_token(host)}"


def inbox_prefix(service: str) -> str:
    """Replies to a service come in below this prefix, so that no service can read another's."""
    return f"{INBOX_PREFIX}{service}"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects that a service's NATS user may publish to and subscribe to; everything else is refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


_CELLS_READ = (f"$JS.API.STREAM.INFO.KV_{CELLS_BUCKET}", f"$JS.API.DIRECT.GET.KV_{CELLS_BUCKET}.>")
_WORKER = Permissions(("tokens.*", *_CELLS_READ), (CELLS_CHANGED, PROFILE_SUBJECT))

PERMISSIONS: dict[str, Permissions] = {
    "gateway": Permissions(
        ("requests.*", "tokenize.*", "control.*", "alive.*", METRICS_SUBJECT, *_CELLS_READ),
        ("tokens.*", "replies.*", CELLS_CHANGED),
    ),
    "tokenizer": Permissions(
        (
            "sequences.*.*",
            "replies.*",
            "control.*",
            *_CELLS_READ,
            f"$JS.API.CONSUMER.CREATE.{REQUESTS_STREAM}.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{REQUESTS_STREAM}.>",
            f"$JS.ACK.{REQUESTS_STREAM}.>",
        ),
        ("tokenize.*", CELLS_CHANGED),
    ),
    "scheduler": Permissions(
        (
            "replies.*",
            "host.*",
            "control.*",
            DEAD_LETTERS_SUBJECTS,
            "$JS.API.>",
            f"$JS.ACK.{SEQUENCES_STREAM}.>",
            f"$KV.{CELLS_BUCKET}.>",
        ),
        ("control.*", "alive.*", CELLS_CHANGED),
    ),
    "prefill_worker": _WORKER,
    "decode_worker": _WORKER,
    "pool": Permissions(("control.*",), ("host.*",)),
    "supervisor": Permissions((STATUS_SUBJECT, PROFILE_SUBJECT, "control.*"), ("host.*",)),
}


def permissions(service: str) -> Permissions:
    """PERMISSIONS plus what every service may do: answer requests, read its own inbox, tell its status and metrics."""
    own = PERMISSIONS[service]
    return Permissions(
        (*own.publish, f"{INBOX_PREFIX}*.>"),
        (*own.subscribe, f"{inbox_prefix(service)}.>", STATUS_SUBJECT, METRICS_SUBJECT),
    )
