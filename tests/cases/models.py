"""The models that the cases are played on: a few random weights under real and made-up tokenizers."""

import json
from pathlib import Path
from typing import Any

from cli.models import cache_root
from libs.engine.gguf_convert import ensure_default_model
from tests.unit.engine.tiny_model import write_model

CTX = 4096
SMALL_CTX = 1024
ADDED = (("<think>", False), ("</think>", False), ("<|tool|>", True))  # and whether they are special
BOS, END = "<s>", "</s>"
STRICT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) or message['role'] not in ('user', 'assistant') %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "[{{ message['role'] }}] {{ message['content'] }}{{ eos_token }}{% endfor %}"
)


def byte_level_model(folder: Path, *, has_template: bool = True) -> Path:
    """SmolLM2's own tokenizer and template, with three more tokens; two ends, told in generation_config.json."""
    tokenizer, config = _default_files()
    first = len(tokenizer["model"]["vocab"])
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for index, (text, special) in enumerate(ADDED):
        tokenizer["added_tokens"].append({"id": first + index, "content": text, **plain, "special": special})
    if not has_template:
        del config["chat_template"]
    model_dir = _random_model(folder, first + len(ADDED), CTX, eos_token_id=2)
    (model_dir / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    return _with_tokenizer(model_dir, tokenizer, config)


def byte_fallback_model(folder: Path) -> Path:
    """A SentencePiece-like tokenizer whose rare characters are bytes, a template that refuses, two ends in config.json.

    Its vocabulary is letters, so that everything else takes the way of the bytes; it begins each text by a token.
    """
    pieces = ["<unk>", BOS, END, "<end>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [chr(letter) for letter in range(33, 127)]
    merges = [["▁", "t"], ["h", "e"], ["▁t", "he"], ["a", "n"], ["o", "r"]]
    pieces += ["".join(merge) for merge in merges]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bos, text = {"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    other = {"Sequence": {"id": "B", "type_id": 1}}
    to_blank = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": pieces[index], **plain} for index in range(4)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, text],
            "pair": [bos, text, other],
            "special_tokens": {BOS: {"id": BOS, "ids": [1], "tokens": [BOS]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                to_blank,
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {piece: index for index, piece in enumerate(pieces)},
            "merges": merges,
        },
    }
    config = {"bos_token": BOS, "eos_token": END, "add_bos_token": True, "chat_template": STRICT_TEMPLATE}
    model_dir = _random_model(folder, len(pieces), SMALL_CTX, eos_token_id=[2, 3])
    return _with_tokenizer(model_dir, tokenizer, config)


def _random_model(folder: Path, vocab_size: int, context: int, **config: Any) -> Path:
    return write_model(
        folder,
        vocab_size=vocab_size,
        hidden_size=64,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        **config,
    )


def _with_tokenizer(model_dir: Path, tokenizer: dict[str, Any], config: dict[str, Any]) -> Path:
    (model_dir / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model_dir / "tokenizer_config.json").write_text(json.dumps(config))
    return model_dir


def _default_files() -> tuple[dict[str, Any], dict[str, Any]]:
    source = ensure_default_model(cache_root())
    tokenizer: dict[str, Any] = json.loads((source / "tokenizer.json").read_text())
    config: dict[str, Any] = json.loads((source / "tokenizer_config.json").read_text())
    return tokenizer, config
