"""What the served model allows, and token ids within its vocabulary. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.contracts.errors import InvalidRequest

MAX_CHOICES: Final = 128


@dataclass(frozen=True, slots=True)
class Limits:
    model: str
    max_model_len: int
    vocab_size: int
    max_choices: int = MAX_CHOICES
    sampling: Mapping[str, float] = field(default_factory=dict)  # what its makers recommend, by the names of fields
    is_strict: bool = False  # fields that nobody knows are refused


def token_ids(name: str, ids: Sequence[object], limits: Limits) -> tuple[int, ...]:
    """Raises InvalidRequest for what is not in the vocabulary."""
    checked = []
    for index, token_id in enumerate(ids):
        if not isinstance(token_id, int) or not 0 <= token_id < limits.vocab_size:
            shown = str(token_id)[:24] if isinstance(token_id, int) else type(token_id).__name__
            raise InvalidRequest(
                f"{name}[{index}] is {shown}, not a token id from 0 to {limits.vocab_size - 1}", param=name
            )
        checked.append(token_id)
    return tuple(checked)
