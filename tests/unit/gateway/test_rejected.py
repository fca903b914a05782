"""A request that a tokenizer handles twice: the second handling may fail, the first one counts."""

from libs.contracts.errors import Unavailable, WireError
from tests.unit.gateway.conftest import Gateway


async def test_a_request_that_streams_is_not_rejected_any_more(gateway: Gateway) -> None:
    """Accepted was lost, the queue delivered the request again, and by then no cell was open."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.tokens(request, 0, b"a")

    await gateway.backend.reject(request, WireError.of(Unavailable("no cell serves the model at the moment")))
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 1, b"b", "length")

    assert (await call.json())["choices"][0]["text"] == "ab"
