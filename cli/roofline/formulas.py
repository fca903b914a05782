"""Bytes, operations and their quotients: of KV, of a decode step, of attention. Plain functions over plain values.

A step can take no less than its bytes at the device's bandwidth, nor less than its operations at the device's rate:
the same bound as in bench/limits.py. What a server adds to that, and what devices tell each other, is not in it.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cli.roofline.device import Device
from cli.roofline.shape import Shape

VALUE_BYTES: Final = MappingProxyType(
    {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
)
TENSORS_OF_ATTENTION: Final = 4  # Q, K, V and the output, n × d each
PASSES_OF_SCORES: Final = 4  # n × n: the scores are written and read, their softmax is written and read


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of a stored value."""

    weight_bytes: float
    kv_bytes: float


def kv_token_bytes(shape: Shape, kv_bytes: float) -> float:
    """Bytes of K and V of one token: 2 · layers · kv_heads · head_dim · bytes of a value.

    Llama-3-70B in 16 bits: 2 · 80 · 8 · 128 · 2 = 327,680 = 0.3125 MiB. Only KV heads are stored: grouped-query
    attention (Ainslie et al., EMNLP 2023, arXiv:2305.13245).
    """
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * kv_bytes


def shared_prompt_bytes(token_bytes: float, prompt_tokens: int, users: int) -> tuple[float, float]:
    """KV of a prompt that `users` have in common: each with blocks of their own, and all with the same blocks.

    1,000 tokens of Llama-3-70B for 128 users: 42 GB become 0.33 GB. Source: block sharing in PagedAttention (Kwon et
    al., SOSP 2023, arXiv:2309.06180).
    """
    once = token_bytes * prompt_tokens
    return once * users, once


def standard_attention_intensity(tokens: int, head_dim: int, value_bytes: float) -> float:
    """FLOP per byte of attention over n tokens that writes its n × n scores to memory.

    Operations: Q·Kᵀ and P·V, 2·n²·d each. Bytes: four n × d tensors, and four passes over n × n values. Together
    4·n²·d / (b·(4·n·d + 4·n²)) = n·d / (b·(n + d)): 62 at n = 4,096, d = 128, b = 2, and never more than d / b.
    Source: Dao et al., FlashAttention, NeurIPS 2022, arXiv:2205.14135, section 3.2.
    """
    ops = 4 * tokens**2 * head_dim
    values = TENSORS_OF_ATTENTION * tokens * head_dim + PASSES_OF_SCORES * tokens**2
    return ops / (values * value_bytes)


def flash_attention_intensity(tokens: int, head_dim: int, value_bytes: float) -> float:
    """FLOP per byte of attention that keeps its scores on the chip: 4·n²·d / (b·4·n·d) = n / b; 2,048 at n = 4,096.

    An upper bound: K and V are taken to be read once. Source: as above.
    """
    return 4 * tokens**2 * head_dim / (TENSORS_OF_ATTENTION * tokens * head_dim * value_bytes)


@dataclass(frozen=True, slots=True)
class DecodeCost:
    """What a decode step reads and computes. `token_…` is of each sequence and each token of its context."""

    matrix_values: int
    weight_bytes: float  # of all matrices, read once a step
    token_ops: float
    token_bytes: float

    @classmethod
    def of(cls, shape: Shape, precision: Precision) -> "DecodeCost":
        """The embedding is not in it: of that, a step reads a row for each sequence."""
        values = shape.layer_matrix_values + shape.head_values
        return cls(
            matrix_values=values,
            weight_bytes=values * precision.weight_bytes,
            token_ops=4 * shape.layers * shape.heads * shape.head_dim,  # scores and weighted sums, 2 FLOP each
            token_bytes=kv_token_bytes(shape, precision.kv_bytes),
        )

    def sequence_ops(self, context_tokens: int) -> float:
        """Operations that one sequence adds to a step: 2 for each weight, and its attention."""
        return 2 * self.matrix_values + self.token_ops * context_tokens

    def intensity(self, batch: float, context_tokens: int) -> float:
        """FLOP per byte of a step of `batch` sequences: B·(2·P + a·n) / (w + B·k·n)."""
        read_bytes = self.weight_bytes + batch * self.token_bytes * context_tokens
        return batch * self.sequence_ops(context_tokens) / read_bytes

    @property
    def attention_intensity(self) -> float:
        """FLOP per byte of a step's attention, whatever the batch and the context: heads / kv_heads in 16 bits.

        Each sequence reads its own KV, so a greater batch does not help. Source: Pope et al., Efficiently Scaling
        Transformer Inference, MLSys 2023, arXiv:2211.05102, section 3.3.
        """
        return self.token_ops / self.token_bytes

    def transition_batch(self, ridge: float, context_tokens: int) -> float | None:
        """The batch from which a step is bound by arithmetic; None: never.

        From intensity(B) = ridge: B = ridge·w / (2·P + n·(a − ridge·k)). For short contexts (n = 0) that is
        ridge · b / 2: 295 on an H100 and 156 on an A100 in 16 bits. Where the divisor is not positive, the KV that
        each further sequence reads keeps the step under the ridge at every batch.
        """
        gain = self.sequence_ops(context_tokens) - ridge * self.token_bytes * context_tokens
        return ridge * self.weight_bytes / gain if gain > 0 else None


def prompt_tokens_s(cost: DecodeCost, device: Device, prompt_tokens: int) -> float:
    """Prompt tokens that one device can compute a second, bound by arithmetic; the mean query sees half of the keys."""
    return device.flops_s / cost.sequence_ops(prompt_tokens // 2)


def cost_per_million(price_per_hour: float, tokens_s: float) -> float:
    """What a million tokens cost on a machine of this price that gives so many a second."""
    return price_per_hour / 3600 / tokens_s * 1e6
