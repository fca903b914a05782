"""Several models behind one gateway, each with names, limits, cells and metrics of its own."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.contracts.errors import ConfigError
from libs.runtime.config import load_config
from libs.text.model_files import read_model_files
from services.gateway.catalog import Catalog, Model
from services.gateway.config import Config
from services.gateway.limits import Limits
from services.gateway.tokens import tokenizer_info
from services.gateway.validate import Kind, validate
from tests.fakes.tiny_model import make_tiny_model
from tests.unit.gateway.asgi import Call
from tests.unit.gateway.backend import MODEL, ByteTokenizer, cell_record
from tests.unit.gateway.conftest import LIMITS, Gateway, catalog_of, running_gateway

OTHER, ALIAS = "org/other-1.5", "small"
SHORTER = Limits(OTHER, 16, ByteTokenizer.vocab_size)
BOTH = Catalog(
    [
        Model(LIMITS, ByteTokenizer(), tokenizer_info({"eos_token": "<eos>"}, None, LIMITS)),
        Model(SHORTER, ByteTokenizer(), tokenizer_info({"eos_token": "<end>"}, None, SHORTER), (ALIAS,)),
    ]
)
ENVIRON = {"HR_GATEWAY_MODEL": "a", "HR_GATEWAY_MODEL_DIR": "/a", "HR_GATEWAY_MAX_MODEL_LEN": "64"}


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """Both models have a cell."""
    async with running_gateway(catalog=BOTH) as running:
        running.bus.directory.records.append(replace(cell_record(), model=OTHER, cell="c9"))
        yield running


async def error_of(call: Call) -> tuple[int, Any]:
    return (error := (await call.json())["error"], call.status)[1], error["code"]


async def test_all_models_are_listed_under_all_their_names(gateway: Gateway) -> None:
    """An alias is an item of its own whose root is the model."""
    models = (await gateway.call("/v1/models", method="GET").json())["data"]

    assert [(one["id"], one["root"], one["max_model_len"]) for one in models] == [
        (MODEL, MODEL, 64),
        (OTHER, OTHER, 16),
        (ALIAS, OTHER, 16),
    ]
    described = await gateway.call(f"/v1/models/{ALIAS}", method="GET").json()
    assert (described["id"], described["root"]) == (ALIAS, OTHER)


@pytest.mark.parametrize("asked", [OTHER, ALIAS])
async def test_a_request_goes_to_the_model_that_it_names(gateway: Gateway, asked: str) -> None:
    """By its own name or by an alias, and is counted there; the answer has the model's own name."""
    call = gateway.complete(model=asked, max_tokens=3, ignore_eos=True)
    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, [104, 105, 106], "length")
    await gateway.backend.finished(request, 3, "length")
    answer = await call.json()

    assert (request.model, answer["model"], answer["choices"][0]["text"]) == (OTHER, OTHER, "hij")
    for model, expected in ((OTHER, 1), (MODEL, 0)):
        labels = {"model_name": model, "finished_reason": "length"}
        assert gateway.service.metrics.registry.get_sample_value("vllm:request_success_total", labels) == expected


async def test_each_model_has_limits_of_its_own(gateway: Gateway) -> None:
    """What fits into one context may be too much for the other."""
    ids = list(range(20))
    fits = gateway.complete(prompt=ids, max_tokens=1)
    assert (await gateway.taken()).model == MODEL
    fits.leave()

    assert await error_of(gateway.complete(prompt=ids, model=OTHER)) == (400, "context_length_exceeded")


async def test_a_model_whose_cell_is_gone_is_unavailable(gateway: Gateway) -> None:
    """It leaves the list and its requests are answered 503, while the other one serves; an unknown one is 404."""
    gateway.bus.directory.records[1] = replace(gateway.bus.directory.records[1], max_prompt_tokens=0)

    models = (await gateway.call("/v1/models", method="GET").json())["data"]
    assert [one["id"] for one in models] == [MODEL]
    assert await error_of(gateway.call(f"/v1/models/{OTHER}", method="GET")) == (503, "unavailable")
    assert await error_of(gateway.complete(model=ALIAS)) == (503, "unavailable")
    assert await error_of(gateway.complete(model="nobody")) == (404, "model_not_found")
    call = gateway.complete()
    assert (await gateway.taken()).model == MODEL
    call.leave()


async def test_detokenize_reads_with_the_named_models_tokenizer(gateway: Gateway) -> None:
    """And within its limits; who names none means the first."""
    assert (await gateway.call("/detokenize", {"tokens": [104] * 20}).json())["prompt"] == "h" * 20
    assert (await error_of(gateway.call("/detokenize", {"model": ALIAS, "tokens": [104] * 20})))[0] == 400
    assert (await gateway.call("/tokenizer_info", method="GET").json())["eos_token"] == "<eos>"


def test_the_settings_name_further_models() -> None:
    """As a JSON list beside the first one, each with its own directory, limit and aliases."""
    more = '[{"model": "b", "model_dir": "/b", "max_model_len": 32, "aliases": ["c"]}]'

    config = load_config(
        Config, prefix="HR_GATEWAY_", environ=ENVIRON | {"HR_GATEWAY_MORE_MODELS": more, "HR_GATEWAY_ALIASES": "x, y"}
    )

    assert [(one.model, one.model_dir, one.max_model_len, one.aliases) for one in config.models] == [
        ("a", Path("/a"), 64, ("x", "y")),
        ("b", Path("/b"), 32, ("c",)),
    ]


@pytest.mark.parametrize(
    "extra",
    [
        {"HR_GATEWAY_MORE_MODELS": "["},
        {"HR_GATEWAY_MORE_MODELS": '[{"model": "b"}]'},
        {"HR_GATEWAY_MORE_MODELS": '[{"model": "a", "model_dir": "/b", "max_model_len": 32}]'},
        {"HR_GATEWAY_ALIASES": "b.c,b_c"},
    ],
)
def test_further_models_that_are_not_clear_stop_the_gateway(extra: dict[str, str]) -> None:
    """No JSON, a field that is missing, a name that two have, also where only subjects take them for one."""
    with pytest.raises(ConfigError):
        load_config(Config, prefix="HR_GATEWAY_", environ=ENVIRON | extra)


RECOMMENDED = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (0.6, 0.95, 20, 1.05)),
        ({"temperature": 0, "top_k": 5}, (0.0, 0.95, 5, 1.05)),
        ({"repetition_penalty": 1}, (0.6, 0.95, 20, 1.0)),
        ({"use_beam_search": True}, (1.0, 1.0, 0, 1.0)),
    ],
)
def test_what_the_makers_recommend_stands_where_nothing_is_said(
    body: dict[str, Any], expected: tuple[float, float, int, float]
) -> None:
    """Field by field, and not for a beam search."""
    payload = msgspec.json.encode({"model": MODEL, "prompt": "hi", **body})

    params = validate(Kind.COMPLETION, payload, catalog_of(replace(LIMITS, sampling=RECOMMENDED))).params

    assert (params.temperature, params.top_p, params.top_k, params.repetition_penalty) == expected


def test_recommendations_come_from_the_models_files(tmp_path: Path) -> None:
    """generation_config.json has them; a value that no request could have stops the start."""
    make_tiny_model(tmp_path)
    generation = tmp_path / "fake" / "generation_config.json"
    generation.write_text('{"eos_token_id": 2, "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": null}')
    assert read_model_files(tmp_path / "fake").sampling == {"temperature": 0.6, "top_k": 20}

    generation.write_text('{"top_p": 7}')
    with pytest.raises(ConfigError, match="top_p"):
        read_model_files(tmp_path / "fake")
