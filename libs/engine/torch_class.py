"""Names the numerics class of the torch kernels.

The probe runs every kernel on inputs made of exact integers, so equal hashes mean equal bits on that input.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch

from kernels.adjust import Penalties, adjust
from kernels.embedding import embedding
from kernels.kv_write import kv_write
from kernels.linear import linear, pack_linear
from kernels.log_softmax import log_softmax
from kernels.paged_attention import paged_attention, plan_attention
from kernels.rms_norm import rms_norm
from kernels.rope import rope, rope_tables
from kernels.sample import sample
from kernels.segments import PIECE_TOKENS, even_cuts
from kernels.swiglu import swiglu
from libs.engine.noise import noise
from libs.engine.numerics_class import DIGEST_DIGITS, class_name, source_digest
from libs.engine.pool import TORCH_DTYPES

FAMILY: Final = "torch"
CHUNK_TOKENS: Final = 37
BLOCK_TOKENS: Final = 16


def torch_class(dtype: str, kv_dtype: str) -> str:
    """The class's name. It makes no batch promise. Call it with the thread count that the engine will use."""
    probe = probe_digest(TORCH_DTYPES[dtype], TORCH_DTYPES[kv_dtype])
    return class_name(FAMILY, dtype, kv_dtype, source_digest(torch.__version__), probe)


@torch.inference_mode()
def probe_digest(dtype: torch.dtype, kv_dtype: torch.dtype) -> str:
    """Hash over the bits of every kernel's output on a fixed input."""
    digest = hashlib.sha256()
    for out in (*_layer_outputs(dtype), *_attention_outputs(kv_dtype), *_sampling_outputs()):
        digest.update(out.contiguous().numpy().tobytes())
    return digest.hexdigest()[:DIGEST_DIGITS]


def _layer_outputs(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    x_MK = _noise(0, CHUNK_TOKENS, 608)
    for cuts in ((), even_cuts(608)):
        weight = pack_linear(_noise(1, 96, 608), dtype, cuts, _noise(2, 96))
        yield linear(x_MK, weight, _noise(3, CHUNK_TOKENS, 96))
        yield linear(x_MK[:1], weight)
    yield rms_norm(x_MK, _noise(4, 608), 1e-5)
    yield swiglu(x_MK * 16)
    yield embedding(torch.arange(5), x_MK)


def _attention_outputs(kv_dtype: torch.dtype) -> Iterator[torch.Tensor]:
    blocks, heads, kv_heads, head_dim = 20, 4, 2, 32
    kv_NLCHTD = _noise(5, blocks, 1, 2, kv_heads, BLOCK_TOKENS, head_dim).to(kv_dtype)
    x_MXD = _noise(6, CHUNK_TOKENS + 1, heads + 2 * kv_heads, head_dim) * 4
    length = blocks * BLOCK_TOKENS
    bases_R = torch.tensor([length - CHUNK_TOKENS, PIECE_TOKENS])
    positions_M = torch.cat([torch.arange(length - CHUNK_TOKENS, length), bases_R[1:]])
    cos_PF, sin_PF = rope_tables(head_dim, 10000.0, length)
    rope(x_MXD[:, : heads + kv_heads], cos_PF[positions_M], sin_PF[positions_M])
    new_MCHD = x_MXD[:CHUNK_TOKENS, heads:].view(CHUNK_TOKENS, 2, kv_heads, head_dim)
    chunk_M = positions_M[:CHUNK_TOKENS]
    kv_write(kv_NLCHTD, 0, new_MCHD, chunk_M // BLOCK_TOKENS, chunk_M % BLOCK_TOKENS)
    tables_RB = torch.arange(blocks).expand(2, blocks).contiguous()
    plan = plan_attention(torch.tensor([0, CHUNK_TOKENS, CHUNK_TOKENS + 1]), bases_R, tables_RB, kv_NLCHTD)
    yield x_MXD
    yield kv_NLCHTD.view(torch.uint8)
    yield paged_attention(x_MXD[:, :heads], kv_NLCHTD, 0, plan, head_dim**-0.5)


def _sampling_outputs() -> Iterator[torch.Tensor]:
    logits_RV = _noise(7, 3, 1001) * 8
    filters_R4 = torch.tensor([[1.0, 0, 0, 1], [0.7, 0.01, 40, 0.9], [0, 0, 0, 1]], dtype=torch.float64)
    ids_R = sample(logits_RV, filters_R4, torch.tensor([1, 2, 3]), torch.tensor([0, 1, 2]))
    yield ids_R
    seen = np.arange(0, 1001, 7, dtype=np.int32)
    yield torch.from_numpy(
        adjust(logits_RV[0].numpy(), Penalties(seen, seen % 3, 1.3, 0.3, 0.7), (seen, noise(8, len(seen))))
    )
    yield log_softmax(logits_RV, ids_R[:, None])


def _noise(stream: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(noise(stream, *shape))
