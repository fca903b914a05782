"""What `headrace roofline` prints."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["roofline", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_table_says_what_a_planner_asks() -> None:
    """Memory, sharing, intensities, both transitions, cost, and the smallest split."""
    text = printed("llama-3-70b", "h100", "--price", "3")

    for words in ("0.3125 MiB", "41.94 GB → 0.33 GB", "295 FLOP/byte", "62 FLOP/byte", "2,048 FLOP/byte"):
        assert words in text
    assert "from 295 sequences" in text and "never" in text and "needs --price" not in text
    assert "2 devices, tensor 2 parallel; 2 sequences of 4,096 tokens" in text


def test_json_has_every_figure() -> None:
    """Never is null, as is a cost without a price."""
    figures = json.loads(printed("llama-3-70b", "h100", "--json"))

    assert figures["kv_token_bytes"] == 327_680
    assert figures["context_batch"] is None and figures["million_output_cost"] is None
    assert figures["smallest"]["tensor"] == 2
    assert len(figures["splits"]) == 7


def test_a_config_json_is_a_model(tmp_path: Path) -> None:
    """A context as long as the model's own, where that is shorter than the usual one."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 256,
        "max_position_embeddings": 512,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))

    for model in (tmp_path, tmp_path / "config.json"):
        figures = json.loads(printed(str(model), "l4", "--json"))
        assert figures["kv_token_bytes"] == 2 * 2 * 2 * 16 * 2
        assert figures["load"]["context_tokens"] == 512


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no-such", "h100"], "llama-3-70b"),
        (["llama-3-8b", "h1000"], "no device 'h1000'"),
        (["llama-3-8b", "h100", "--dtype", "float8"], "--dtype must be one of"),
        (["llama-3-8b", "h100", "--users", "0"], "--users"),
    ],
)
def test_what_is_not_known_is_named(arguments: list[str], says: str) -> None:
    """Exit code 2 and a list of what there is."""
    done = CliRunner().invoke(app, ["roofline", *arguments])

    assert done.exit_code == 2
    assert says in done.output
