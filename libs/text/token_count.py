"""Counts the ids that a tokenizer.json has tokens for, without building the tokenizer.

For who needs the number alone: a worker, whose matrices may have more rows than there are tokens.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from libs.contracts.errors import ConfigError


def token_count(tokenizer_json: Path) -> int:
    """One more than the highest id of the vocabulary and of the added tokens.

    Raises: OSError; ConfigError when the file cannot be understood.
    """
    try:
        content = json.loads(tokenizer_json.read_bytes())
        return 1 + max(_ids(content))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{tokenizer_json} names no tokens: {error!r}") from error


def _ids(content: Any) -> Iterator[int]:
    vocabulary = content["model"]["vocab"]
    yield from vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    for added in content.get("added_tokens") or ():
        yield added["id"]
