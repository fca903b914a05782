"""Grammars are tried where the worst of them hurts nobody: real processes, real limits."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.contracts.errors import InvalidRequest, Overloaded, Unavailable
from libs.contracts.messages import Grammar
from libs.structured.resolve import RESOLVED
from services.tokenizer.grammars import MOST_WAITING, Grammars
from tests.unit.text.small_model import EOS, small_tokenizer_json

pytestmark = pytest.mark.integration

ENDLESS = Grammar(
    "json_schema", '{"type":"integer","multipleOf":999983}', "response_format"
)  # a thousand states squared
CYCLE = "".join(f'\nr{i}: "x{i}"* | r{(i + 1) % 3000}' for i in range(3000))
TOO_DEEP = Grammar("grammar", "start: " + " ".join(f"r{i}" for i in range(3000)) + CYCLE, "structured_outputs")


def pattern(source: str) -> Grammar:
    return Grammar("regex", source, "structured_outputs")


@pytest.fixture
def grammars(tmp_path: Path) -> Iterator[Grammars]:
    (tmp_path / "tokenizer.json").write_text(small_tokenizer_json())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS}))
    with Grammars(tmp_path) as made:
        yield made


async def test_what_never_ends_and_what_overflows_is_refused_and_holds_nobody_up(grammars: Grammars) -> None:
    """Ended by the kernel after its second of processor time, or by its own overflow; others are answered meanwhile."""
    await grammars.check(pattern("warm"))
    began_s = time.monotonic()
    endless = asyncio.create_task(grammars.check(ENDLESS))
    await asyncio.sleep(0)

    resolved = await grammars.check(pattern("a+"))
    with pytest.raises(InvalidRequest, match="to compile") as overflowed:
        await grammars.check(TOO_DEEP)
    assert not endless.done()
    with pytest.raises(InvalidRequest, match="takes more than 1 s") as ended:
        await endless

    assert (resolved.kind, resolved.field) == (RESOLVED, "structured_outputs")
    assert (overflowed.value.param, ended.value.param) == ("structured_outputs", "response_format")
    assert time.monotonic() - began_s < 10.0  # a second where a processor is free


async def test_a_verdict_is_remembered_and_the_process_comes_back(grammars: Grammars) -> None:
    """The same grammar is not tried twice, not even a bad one; whoever ended the process, the next grammar has one."""
    good = await grammars.check(pattern("a+"))
    with pytest.raises(InvalidRequest):
        await grammars.check(pattern("("))
    assert grammars._process is not None
    os.kill(grammars._process.pid, 9)
    grammars._process.wait()

    assert await grammars.check(pattern("a+")) == good
    with pytest.raises(InvalidRequest, match="unclosed group"):
        await grammars.check(pattern("("))
    assert grammars._process.returncode is not None
    assert (await grammars.check(pattern("b+"))).kind == RESOLVED


async def test_a_model_that_never_ends_has_no_grammars(tmp_path: Path) -> None:
    """It could not say that an answer is complete; that is the reason that is told."""
    (tmp_path / "tokenizer.json").write_text(small_tokenizer_json())
    with Grammars(tmp_path) as endless, pytest.raises(InvalidRequest, match="no end of sequence"):
        await endless.check(pattern("a"))


async def test_a_process_that_cannot_begin_is_not_the_client_s_fault(tmp_path: Path) -> None:
    """Without its files it ends at once; whoever asks may come again."""
    with Grammars(tmp_path) as broken, pytest.raises(Unavailable):
        await broken.check(pattern("a"))


async def test_more_grammars_than_may_wait_are_refused_at_once(grammars: Grammars) -> None:
    """The queue of different ones is bounded; who is in it is answered, and who asks for the same with it."""
    names = [*(f"a{n}" for n in range(MOST_WAITING)), "one more", "a0"]
    checks = [asyncio.create_task(grammars.check(pattern(name))) for name in names]

    results = await asyncio.gather(*checks, return_exceptions=True)

    assert [type(result) for result in results] == [Grammar] * MOST_WAITING + [Overloaded, Grammar]
    assert grammars.counts["tried"] == MOST_WAITING + 2 and results[0] == results[-1]
