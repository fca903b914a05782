"""Nobody who is cancelled goes on."""

import asyncio

import pytest

from libs.runtime.cancellation import heed

LONG_S = 60.0


@pytest.mark.parametrize("failure", [None, ValueError("what came instead")])
async def test_a_cancellation_beside_the_answer_counts(failure: Exception | None) -> None:
    """Where `asyncio.wait_for` of Python 3.11 would give the answer, or its failure, and no more."""
    answer = asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(heed(asyncio.wait_for(answer, LONG_S)))
    await asyncio.sleep(0)

    if failure:
        answer.set_exception(failure)
    else:
        answer.set_result("what was asked for")
    asking.cancel()
    await asyncio.wait((asking,))

    assert asking.cancelled()


async def test_an_answer_that_nobody_disturbs_arrives() -> None:
    """Also within a time limit, and after an earlier one that ran out."""
    answered = asyncio.get_running_loop().create_future()
    answered.set_result("here")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await heed(asyncio.sleep(LONG_S))

    async with asyncio.timeout(LONG_S):
        assert await heed(answered) == "here"
