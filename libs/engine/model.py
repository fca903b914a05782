"""The forward pass over a ragged step: every kernel in order, nothing else.

Axes: M tokens, K hidden, Q query heads, H kv heads, D head dim, F = D / 2, R rows, V vocabulary.
"""

import torch

from kernels.embedding import embedding
from kernels.kv_write import kv_write
from kernels.linear import linear
from kernels.paged_attention import paged_attention
from kernels.rms_norm import rms_norm
from kernels.rope import rope
from kernels.swiglu import swiglu
from libs.engine.model_config import ModelConfig
from libs.engine.step import StepBatch
from libs.engine.weights import LayerWeights, ModelWeights


class Model:
    """Weights and tables of one model; holds no state of any sequence."""

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self.config = config
        self._weights = weights
        self._cos_PF, self._sin_PF = map(
            torch.from_numpy, config.rope.tables(config.head_dim, config.max_position_tokens)
        )
        self._scale = config.head_dim**-0.5
        self.windows = frozenset(map(config.window, range(config.layers)))

    def forward(self, batch: StepBatch, kv_NLCHTD: torch.Tensor) -> torch.Tensor:
        """Write the KV of the batch's tokens and return their hidden states [M, K] float32 after the last layer."""
        x_MK = embedding(batch.ids_M, self._weights.embedding_VK)
        rotation = self._cos_PF.index_select(0, batch.positions_M), self._sin_PF.index_select(0, batch.positions_M)
        for index, layer in enumerate(self._weights.layers):
            x_MK = self._attend(x_MK, layer, index, batch, rotation, kv_NLCHTD)
            h_MK = rms_norm(x_MK, layer.ffn_norm_K, self.config.rms_eps)
            x_MK = linear(swiglu(linear(h_MK, layer.gate_up)), layer.down, residual_MN=x_MK)
        return x_MK

    def logits(self, x_RK: torch.Tensor) -> torch.Tensor:
        """[R, V] float32 from hidden states that `forward` returned."""
        return linear(rms_norm(x_RK, self._weights.final_norm_K, self.config.rms_eps), self._weights.head)

    def _attend(
        self,
        x_MK: torch.Tensor,
        layer: LayerWeights,
        index: int,
        batch: StepBatch,
        rotation: tuple[torch.Tensor, torch.Tensor],
        kv_NLCHTD: torch.Tensor,
    ) -> torch.Tensor:
        M, Q, H, D = len(x_MK), self.config.heads, self.config.kv_heads, self.config.head_dim
        qkv_MXD = linear(rms_norm(x_MK, layer.attention_norm_K, self.config.rms_eps), layer.qkv).view(M, Q + 2 * H, D)
        if layer.qk_norms_D is not None:
            _norm_heads(qkv_MXD, Q, H, layer.qk_norms_D, self.config.rms_eps)
        rope(qkv_MXD[:, : Q + H], *rotation)
        kv_write(kv_NLCHTD, index, qkv_MXD[:, Q:].view(M, 2, H, D), batch.blocks_M, batch.offsets_M)
        plan = batch.attention[self.config.window(index)]
        attended_MQD = paged_attention(qkv_MXD[:, :Q], kv_NLCHTD, index, plan, self._scale)
        return linear(attended_MQD.view(M, Q * D), layer.o, residual_MN=x_MK)


def _norm_heads(qkv_MXD: torch.Tensor, Q: int, H: int, norms_D: tuple[torch.Tensor, torch.Tensor], eps: float) -> None:
    """Scale each query head and each key head to unit root mean square, in place, then by the norm of its kind."""
    for heads_MXD, norm_D in zip((qkv_MXD[:, :Q], qkv_MXD[:, Q : Q + H]), norms_D, strict=True):
        heads_MXD.copy_(rms_norm(heads_MXD, norm_D, eps))
