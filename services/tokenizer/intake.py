"""The wire in and out: requests from their queue, sequences to a cell's, and word to gateways and schedulers."""

import asyncio
from collections.abc import AsyncGenerator

from libs.contracts import codec, flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import Accepted, Cancel, Done, Known, Rejected, Request, Sequence
from libs.runtime.bus import Bus, NoResponder, RequestTimeout
from libs.runtime.failpoints import failpoint
from libs.runtime.work_queue import Work

ANSWER_TIMEOUT_S = 1.0
TIMEOUT_TRIES = 3
ABSENT_TRIES = 8  # times ABSENT_PAUSE_S: a gateway that is still reconnecting after the broker's restart is not gone
ABSENT_PAUSE_S = 0.25


class Unconfirmed(Unavailable):
    """A message of ours was perhaps not received: handle the request again."""


def pull_requests(bus: Bus, model: str, in_flight: int) -> AsyncGenerator[Work]:
    """The model's requests, from the one consumer that all its tokenizers share."""
    return bus.work(
        flow.REQUESTS_STREAM,
        consumer=f"{flow.TOKENIZERS_CONSUMER}_{flow.subject_token(model)}",
        filter_subject=flow.requests_subject(model),
        ack_wait_s=flow.TOKENIZER_ACK_WAIT_S,
        max_ack_pending=in_flight,
    )


async def publish_sequence(bus: Bus, sequence: Sequence, cell: str, traceparent: str) -> None:
    """Store it in the cell's queue. Raises Overloaded, or Unconfirmed when it may be stored or not."""
    subject = flow.sequences_subject(sequence.model, cell)
    message_id = f"{sequence.request_id}:{sequence.epoch}:sequence"
    failpoint("tokenizer.publish.before")
    try:
        await bus.enqueue(subject, codec.encode(sequence), message_id=message_id, traceparent=traceparent)
    except Unavailable as error:
        raise Unconfirmed(error.message) from error
    failpoint("tokenizer.publish.after")


async def tell_gateway(bus: Bus, request: Request, message: Accepted | Rejected, traceparent: str) -> bool:
    """Whether the gateway still holds the request; False also when there is no such gateway.

    Raises Unconfirmed when it does not answer: it or the broker may be frozen, and whoever thaws goes on.
    """
    payload, subject = codec.encode_in("RepliesMessage", message), flow.replies_subject(request.gateway)
    timeouts = absences = 0
    while timeouts < TIMEOUT_TRIES and absences < ABSENT_TRIES:
        try:
            answer = await bus.request(subject, payload, timeout_s=ANSWER_TIMEOUT_S, traceparent=traceparent)
        except NoResponder:
            absences += 1
            await asyncio.sleep(ABSENT_PAUSE_S)
        except RequestTimeout:
            timeouts += bus.connected  # while the broker is away nobody could answer
            await asyncio.sleep(0 if bus.connected else ABSENT_PAUSE_S)
        else:
            return codec.decode(Known, answer).live
    if absences == ABSENT_TRIES:
        return False
    raise Unconfirmed(f"gateway {request.gateway} does not answer")


async def cancel(bus: Bus, request: Request, cell: str, term: int, traceparent: str) -> None:
    """Tell the cell's scheduler that nobody waits for the request. Raises Unconfirmed when it does not answer."""
    message = Cancel(request.request_id, request.deadline_unix_ms, term, request.epoch)
    payload, subject = codec.encode_in("ControlMessage", message), flow.control_subject(cell)
    for _ in range(TIMEOUT_TRIES):
        try:
            answer = await bus.request(subject, payload, timeout_s=ANSWER_TIMEOUT_S, traceparent=traceparent)
        except NoResponder:
            await asyncio.sleep(ABSENT_PAUSE_S)
        except RequestTimeout:
            continue
        else:
            codec.decode(Done, answer)
            return
    raise Unconfirmed(f"the scheduler of cell {cell} does not answer")
