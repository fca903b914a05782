"""Builds the tokenizer files of a Hugging Face model directory from a GGUF file's vocabulary."""

from types import MappingProxyType
from typing import Any, Final

from libs.engine.gguf_file import GgufError, GgufFile

CONTROL: Final = 3  # token types of the GGUF specification
USER_DEFINED: Final = 4
MAX_VOCABULARY_TOKENS: Final = 1 << 20

DIGITS_ONE_BY_ONE: Final = MappingProxyType({"type": "Digits", "individual_digits": True})
# Byte-level pre-tokenizers by GGUF kind: the steps before byte-level mapping, and whether its own GPT-2 regex runs.
PRE_TOKENIZERS: Final = MappingProxyType(
    {
        "gpt-2": ((), True),
        "smollm": ((DIGITS_ONE_BY_ONE,), True),
    }
)


def tokenizer_json(file: GgufFile) -> dict[str, Any]:
    """The content of tokenizer.json: byte-level BPE with the file's tokens, merges and special tokens.

    Raises: GgufError for another tokenizer model or pre-tokenizer, or a vocabulary that contradicts itself.
    """
    if (model := file.text("tokenizer.ggml.model")) != "gpt2":
        raise GgufError(f"tokenizer model {model} is not supported")
    if (kind := file.text("tokenizer.ggml.pre", "gpt-2")) not in PRE_TOKENIZERS:
        raise GgufError(f"pre-tokenizer {kind} is not supported")
    steps, own_regex = PRE_TOKENIZERS[kind]
    tokens = vocabulary(file)
    prefix_space = file.flag("tokenizer.ggml.add_space_prefix", default=False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": own_regex}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(file, tokens),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*map(dict, steps), byte_level]},
        "post_processor": _post_processor(file, tokens),
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": _merges(file, set(tokens)),
        },
    }


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """The content of tokenizer_config.json: special tokens by role, and the chat template if the file has one."""
    tokens = vocabulary(file)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": file.integer("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": file.flag("tokenizer.ggml.add_bos_token", default=False),
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        if (token_id := special_id(file, key, len(tokens))) is not None:
            config[f"{role}_token"] = tokens[token_id]
    if "tokenizer.chat_template" in file.metadata:
        config["chat_template"] = file.text("tokenizer.chat_template")
    return config


def special_id(file: GgufFile, role: str, vocabulary_tokens: int) -> int | None:
    """The id of a special token by GGUF role ("bos", "eos", "eot", "padding", "unknown"), None when not set."""
    key = f"tokenizer.ggml.{role}_token_id"
    if key not in file.metadata:
        return None
    if (token_id := file.integer(key)) >= vocabulary_tokens:
        raise GgufError(f"{key}: {token_id} is outside the vocabulary")
    return token_id


def vocabulary(file: GgufFile) -> list[str]:
    """All tokens by id, distinct, in byte-level spelling except for special ones."""
    tokens = file.texts("tokenizer.ggml.tokens")
    if not 0 < len(tokens) <= MAX_VOCABULARY_TOKENS:
        raise GgufError(f"vocabulary of {len(tokens)} tokens")
    if len(set(tokens)) != len(tokens):
        raise GgufError("vocabulary names a token twice")
    return tokens


def _added_tokens(file: GgufFile, tokens: list[str]) -> list[dict[str, Any]]:
    kinds = file.integers("tokenizer.ggml.token_type")
    if len(kinds) != len(tokens):
        raise GgufError(f"{len(kinds)} token types for {len(tokens)} tokens")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": token_id, "content": tokens[token_id], **plain, "special": kind == CONTROL}
        for token_id, kind in enumerate(kinds)
        if kind in (CONTROL, USER_DEFINED)
    ]


def _merges(file: GgufFile, tokens: set[str]) -> list[list[str]]:
    merges: list[list[str]] = []
    for merge in file.texts("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= tokens:
            raise GgufError(f"merge {merge[:40]!r} speaks of tokens outside the vocabulary")
        merges.append([left, right])
    return merges


def _post_processor(file: GgufFile, tokens: list[str]) -> dict[str, Any] | None:
    bos_id = special_id(file, "bos", len(tokens))
    if bos_id is None or not file.flag("tokenizer.ggml.add_bos_token", default=False):
        return None
    bos = {"SpecialToken": {"id": tokens[bos_id], "type_id": 0}}
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [bos, first],
        "pair": [bos, first, bos, second],
        "special_tokens": {tokens[bos_id]: {"id": tokens[bos_id], "ids": [bos_id], "tokens": [tokens[bos_id]]}},
    }
