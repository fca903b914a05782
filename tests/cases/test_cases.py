"""Every case of cases.jsonl, played on real services: what went wrong elsewhere goes right here."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cases.checks import checks
from tests.cases.play import Play, read_cases
from tests.cases.stage import MAIN, OPS, STAGE_OF, Stage, Stages
from tests.cases.verdicts import ALONE, LATER, PENDING, WHOLE

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

STREAMS = 4
LONGEST_GAP_S = 2.0


def _cases(*, beside: bool = False) -> list[Any]:
    """Ids, those of one stage together, each with what is known of it."""
    found = []
    for name in sorted(read_cases(), key=lambda name: (STAGE_OF.get(name, MAIN), name)):
        if beside and (name in ALONE or STAGE_OF.get(name) == OPS):
            continue
        marks: list[pytest.MarkDecorator] = []
        if name in PENDING:
            marks.append(pytest.mark.xfail(reason=PENDING[name], strict=True))
        if name in WHOLE and not beside:
            marks.append(pytest.mark.whole)
        found.append(pytest.param(name, marks=marks))
    return found


async def test_every_case_is_looked_at() -> None:
    """By a check of its own, or as one of a feature that is not there."""
    assert set(read_cases()) == set(checks()) | set(LATER)


@pytest.mark.parametrize("name", _cases())
async def test_case(name: str, stages: Stages, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It is answered as it should be, and the stack is as before."""
    stage = await stages.get(STAGE_OF.get(name, MAIN))
    await _play(Play(read_cases()[name], stage, scratch=tmp_path, is_whole=request.config.getoption("whole")))


@pytest.mark.whole
@pytest.mark.parametrize("name", _cases(beside=True))
async def test_case_beside_streams(name: str, stages: Stages, tmp_path: Path) -> None:
    """Four streams that run meanwhile neither change nor halt."""
    stage = await stages.get(STAGE_OF.get(name, MAIN))
    over = asyncio.Event()
    streams = [asyncio.create_task(_stream(stage, seed, over)) for seed in range(STREAMS)]
    try:
        await _play(Play(read_cases()[name], stage, scratch=tmp_path, is_alone=False))
    finally:
        over.set()
        await asyncio.gather(*streams)
    await stage.calm()


async def _play(play: Play) -> None:
    await checks().get(play.case["id"], _is_refused)(play)
    if play.case["expect"].get("alive"):
        await play.calm()


async def _is_refused(play: Play) -> None:
    """What asks for a feature that is not there: at least one clean 4xx, and nothing worse."""
    replies = [await play.stage.client.send(request) for request in play.requests]
    for reply in replies:
        reply.check()
    assert {reply.status // 100 for reply in replies} <= {2, 4} and any(reply.status >= 400 for reply in replies)


async def _stream(stage: Stage, seed: int, over: asyncio.Event) -> None:
    """The same stream again and again, until the case is over."""
    body = {"prompt": "Once", "max_tokens": 60, "ignore_eos": True, "seed": seed, "temperature": 0.8, "stream": True}
    first = await stage.complete(body)
    while not over.is_set():
        reply = await stage.complete(body)
        reply.check()
        assert reply.text == first.text
        gaps = [later - earlier for earlier, later in zip(reply.heard_s, reply.heard_s[1:], strict=False)]
        assert max(gaps, default=0) < LONGEST_GAP_S
