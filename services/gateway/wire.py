"""A request as it goes to the other services."""

from dataclasses import dataclass

from libs.contracts.messages import Request
from libs.contracts.tenancy import DEFAULT_TENANT
from services.gateway.choice import FIRST_EPOCH
from services.gateway.validate import ValidRequest


@dataclass(frozen=True, slots=True)
class Ticket:
    """Who a request is to the other services, and how long it may take."""

    request_id: str
    gateway: str
    deadline_s: float  # on the event loop's clock
    deadline_unix_ms: int
    tenant: str = DEFAULT_TENANT
    is_timed: bool = False  # by its client; else it is the server's own limit


def to_wire(ticket: Ticket, request: ValidRequest) -> Request:
    """The message to the tokenizers."""
    return Request(
        request_id=ticket.request_id,
        epoch=FIRST_EPOCH,
        gateway=ticket.gateway,
        model=request.model,
        tenant=ticket.tenant,
        prompt=request.prompt,
        params=request.params,
        choices=request.choices,
        deadline_unix_ms=ticket.deadline_unix_ms,
        echo_ids=request.wants_prompt_ids,
        priority=request.priority,
        is_timed=ticket.is_timed,
        bad_words=request.bad_words,
        cache_salt=request.cache_salt,
    )
