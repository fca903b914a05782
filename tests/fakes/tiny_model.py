"""A model directory for the fake engine: the sizes of its KV, and a tokenizer with a word for each of its ids.

Every word is plain ASCII, so text is a plain sum of words and a test needs no tokenizer to know it.
"""

import json
from pathlib import Path

from tests.fakes.engine import EOS_IDS, VOCAB_SIZE
from tests.fakes.worker_process import LAYOUT, MAX_MODEL_LEN

SPECIAL = ("<s>", "</s>")


def shown_bytes(token_id: int) -> bytes:
    """What a client sees of a token: nothing of a special one."""
    return b"" if token_id < len(SPECIAL) else _word(token_id).encode()


def make_tiny_model(folder: Path) -> Path:
    """Write config.json and tokenizer files into a new folder `fake`; there are no weights."""
    model_dir = folder / "fake"
    model_dir.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": LAYOUT.kv_heads * LAYOUT.head_dim,
        "intermediate_size": 1,
        "vocab_size": VOCAB_SIZE,
        "num_hidden_layers": LAYOUT.layers,
        "num_attention_heads": LAYOUT.kv_heads,
        "num_key_value_heads": LAYOUT.kv_heads,
        "head_dim": LAYOUT.head_dim,
        "max_position_embeddings": MAX_MODEL_LEN,
        "eos_token_id": list(EOS_IDS),
    }
    (model_dir / "config.json").write_text(json.dumps(config))
    (model_dir / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    (model_dir / "tokenizer_config.json").write_text(json.dumps({"bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}))
    return model_dir


def _tokenizer() -> dict[str, object]:
    words = [_word(token_id) for token_id in range(VOCAB_SIZE)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": text, **flags} for index, text in enumerate(SPECIAL)],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {word: index for index, word in enumerate(words)}, "merges": []},
    }


def _word(token_id: int) -> str:
    return SPECIAL[token_id] if token_id < len(SPECIAL) else f"[{token_id}]"
