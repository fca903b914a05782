"""What sets the families of models apart, where their config.json does not say it or says it in another way."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from libs.engine.config_fields import Fields, shown

DEFAULT_WINDOW_TOKENS: Final = 4096  # what the format's library takes where a file names none
DEFAULT_WINDOW_LAYERS: Final = 28
MAX_TOKENS: Final = 1 << 24
MAX_LAYERS: Final = 1024
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class Biases:
    """Which products of a layer add one."""

    qkv: bool = False
    o: bool = False
    mlp: bool = False


NO_BIASES: Final = Biases()


@dataclass(frozen=True, slots=True)
class Family(ABC):
    """One architecture of Hugging Face's."""

    positions: int  # max_position_embeddings where the file names none
    head_dim: int = 0  # likewise; 0: the hidden size shared out among the heads
    has_qk_norm: bool = False

    @abstractmethod
    def biases(self, fields: Fields) -> Biases:
        """What its products add."""

    @abstractmethod
    def windows(self, fields: Fields, layers: int) -> tuple[int, ...]:
        """Per layer, how many positions a token sees, itself included; 0: all."""


class Llama(Family):
    def biases(self, fields: Fields) -> Biases:
        attention = fields.flag("attention_bias")
        return Biases(attention, attention, fields.flag("mlp_bias"))

    def windows(self, fields: Fields, layers: int) -> tuple[int, ...]:
        if fields.value("sliding_window") is not None:
            fields.refuse("sliding_window", f"{shown(fields.value('sliding_window'))} is not supported for this family")
        return (0,) * layers


class Mistral(Family):
    def biases(self, fields: Fields) -> Biases:
        return NO_BIASES

    def windows(self, fields: Fields, layers: int) -> tuple[int, ...]:
        if fields.has("sliding_window") and fields.value("sliding_window") is None:
            return (0,) * layers
        return (_window_tokens(fields),) * layers


class Qwen(Family):
    """Qwen2 has biases where Qwen3 has norms; the upper layers of both may have a window."""

    def biases(self, fields: Fields) -> Biases:
        if not self.has_qk_norm:
            return Biases(qkv=True)
        attention = fields.flag("attention_bias")
        return Biases(attention, attention)

    def windows(self, fields: Fields, layers: int) -> tuple[int, ...]:
        if not fields.flag("use_sliding_window"):
            return (0,) * layers
        window, kinds = _window_tokens(fields), fields.value("layer_types")
        if kinds is None:
            first = fields.integer("max_window_layers", 0, MAX_LAYERS, default=DEFAULT_WINDOW_LAYERS)
            kinds = [SLIDING if index >= first else FULL for index in range(layers)]
        if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in (FULL, SLIDING) for kind in kinds):
            fields.refuse(
                "layer_types", f"must name {FULL} or {SLIDING} for each of {layers} layers, not {shown(kinds)}"
            )
            return (0,) * layers
        return tuple(window if kind == SLIDING else 0 for kind in kinds)


FAMILIES: Final[Mapping[str, Family]] = {
    "LlamaForCausalLM": Llama(positions=2048),
    "MistralForCausalLM": Mistral(positions=131_072),
    "Qwen2ForCausalLM": Qwen(positions=32_768),
    "Qwen3ForCausalLM": Qwen(positions=32_768, head_dim=128, has_qk_norm=True),
}


def _window_tokens(fields: Fields) -> int:
    return fields.integer("sliding_window", 1, MAX_TOKENS, default=DEFAULT_WINDOW_TOKENS)
