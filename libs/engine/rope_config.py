"""Reads a model's rotary positions from its config.json, whichever of the three spellings it has.

Older files have `rope_scaling`, its kind under `type` or `rope_type`, beside `rope_theta`; newer ones keep all in
`rope_parameters`.
"""

import math
from collections.abc import Mapping
from typing import Final

from libs.engine.config_fields import Fields, shown
from libs.engine.rope import Dynamic, Linear, Llama3, Rope, Scaling, Yarn

KINDS: Final = ("default", "linear", "dynamic", "yarn", "llama3")
DEFAULT_THETA: Final = 10000.0
MAX_FACTOR: Final = 4096.0
MAX_TOKENS: Final = 1 << 24


def read_rope(fields: Fields, declared_tokens: int, wanted_tokens: int) -> tuple[Rope, int]:
    """The rotation, and the longest sequence that it serves.

    Args:
        declared_tokens: max_position_embeddings of the config.
        wanted_tokens: the longest sequence that will be asked of the model, 0 for what it allows. Only `dynamic`
            depends on it: it serves the declared length with plain frequencies, and a longer one, up to its factor
            times that, with those for the wanted length.
    """
    named = fields.below("rope_parameters" if fields.value("rope_parameters") else "rope_scaling")
    kind = named.value("rope_type") if named.has("rope_type") else named.value("type")
    kind = "default" if kind is None else kind
    theta_of = named if named.value("rope_theta") is not None else fields
    theta = theta_of.number("rope_theta", 2.0, 1e12, default=DEFAULT_THETA)
    named.only("partial_rotary_factor", 1.0)
    if any(isinstance(named.value(layers), Mapping) for layers in ("full_attention", "sliding_attention")):
        named.refuse("full_attention", "is not supported: all layers have the same rotation")
    if kind not in KINDS:
        named.refuse("rope_type", f"{shown(kind)} is not supported, only {', '.join(KINDS)}")
        kind = "default"
    scaling, tokens = _scaling(named, str(kind), declared_tokens, wanted_tokens)
    return Rope(theta, scaling), tokens


def _scaling(named: Fields, kind: str, declared_tokens: int, wanted_tokens: int) -> tuple[Scaling | None, int]:
    if kind == "default":
        return None, declared_tokens
    factor = named.number("factor", 1.0, MAX_FACTOR)
    scaled_tokens = _times(declared_tokens, factor)
    if kind == "linear":
        return Linear(factor), scaled_tokens
    if kind == "dynamic":
        context_tokens = min(max(declared_tokens, wanted_tokens), scaled_tokens)
        return Dynamic(factor, declared_tokens, context_tokens), context_tokens
    original_tokens = named.integer("original_max_position_embeddings", 1, MAX_TOKENS, default=declared_tokens)
    if kind == "yarn":
        return _yarn(named, factor, original_tokens), max(declared_tokens, _times(original_tokens, factor))
    low = named.number("low_freq_factor", 1e-6, 1e6)
    high = named.number("high_freq_factor", 1e-6, 1e6)
    if low >= high:
        named.refuse("high_freq_factor", f"must be above low_freq_factor {low:g}, not {high:g}")
    return Llama3(factor, original_tokens, low, high), declared_tokens


def _yarn(named: Fields, factor: float, original_tokens: int) -> Yarn:
    weight, weight_all = named.number("mscale", 0.0, 1e3, default=0.0), named.number("mscale_all_dim", 0.0, 1e3, 0.0)
    amplitude = _growth(factor, weight) / _growth(factor, weight_all) if weight and weight_all else _growth(factor)
    return Yarn(
        factor=factor,
        original_tokens=original_tokens,
        beta_fast=named.number("beta_fast", 1e-6, 1e6, default=32.0),
        beta_slow=named.number("beta_slow", 1e-6, 1e6, default=1.0),
        is_truncated=named.flag("truncate", default=True),
        amplitude=named.number("attention_factor", 1e-6, 1e6, default=amplitude),
    )


def _growth(factor: float, weight: float = 1.0) -> float:
    """What scores grow by to stay as sharp over a context `factor` times as long: 0.1 · weight · ln(factor) + 1."""
    return 0.1 * weight * math.log(factor) + 1.0


def _times(tokens: int, factor: float) -> int:
    return min(int(tokens * factor), MAX_TOKENS)
