"""A small byte-level tokenizer made in memory: all bytes, some merges, two special tokens and one that is not."""

import json
from typing import Any, Final

from libs.text.model_files import ModelFiles
from libs.text.tokenizer import byte_characters

BOS, EOS, THINK = 0, 1, 2
FIRST_BYTE = 3
MERGES: Final = ("Ġ t", "h e", "Ġt he", "Ġ a", "l l", "Ã ¼")
TEMPLATE: Final = (
    "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def small_tokenizer_json(**special: Any) -> str:
    """The content of tokenizer.json; `special` changes the flags of the two special tokens."""
    words = ["<s>", "</s>", "<think>", *byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": BOS, "content": "<s>", **plain, "special": True, **special},
        {"id": EOS, "content": "</s>", **plain, "special": True, **special},
        {"id": THINK, "content": "<think>", **plain, "special": False},
    ]
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
            },
            "model": {
                "type": "BPE",
                "vocab": {word: index for index, word in enumerate(words)},
                "merges": [merge.split(" ") for merge in MERGES],
            },
        }
    )


def small_files(template: str | None = TEMPLATE, **special: Any) -> ModelFiles:
    """Everything that the text side reads from a model directory."""
    return ModelFiles(
        tokenizer_json=small_tokenizer_json(**special),
        chat_template=template,
        special_tokens={"bos_token": "<s>", "eos_token": "</s>"},
        eos_ids=frozenset({EOS}),
        digest="d" * 64,
    )
