"""Names the numerics class: work and cached blocks never cross between processes that name different ones.

The probe runs every kernel on inputs made of exact integers, so equal hashes mean equal bits on that input.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch

import kernels
from kernels.embedding import embedding
from kernels.kv_write import kv_write
from kernels.linear import linear, pack_linear
from kernels.log_softmax import log_softmax
from kernels.paged_attention import paged_attention, plan_attention
from kernels.philox import philox4x32
from kernels.rms_norm import rms_norm
from kernels.rope import rope, rope_tables
from kernels.sample import sample
from kernels.segments import DOWN_SEGMENTS, PIECE_TOKENS, even_cuts
from kernels.swiglu import swiglu
from libs.engine.pool import TORCH_DTYPES

FAMILY: Final = "torch"
SOURCES: Final = (".py", ".cpp", ".h")
DIGEST_DIGITS: Final = 12
CHUNK_TOKENS: Final = 37
BLOCK_TOKENS: Final = 16


def numerics_class(dtype: str, kv_dtype: str) -> str:
    """family/dtype/KV type/kernel digest/probe/segments/S, as sent in Hello.

    The torch family makes no batch promise. Call it with the thread count that the engine will use.
    """
    return "/".join(
        (
            FAMILY,
            dtype,
            kv_dtype,
            kernel_digest(),
            probe_digest(TORCH_DTYPES[dtype], TORCH_DTYPES[kv_dtype]),
            f"o:kv,down:{DOWN_SEGMENTS}",
            f"S{PIECE_TOKENS}",
        )
    )


def kernel_digest() -> str:
    """Hash over the sources of the kernels and the version of the library that executes them."""
    root = Path(kernels.__path__[0])
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(path for path in root.rglob("*") if path.suffix in SOURCES):
        digest.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:DIGEST_DIGITS]


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
    yield log_softmax(logits_RV, ids_R[:, None])


def _noise(stream: int, *shape: int) -> torch.Tensor:
    """Float32 in [−½, ½) from integers alone: the same on every machine."""
    zeros = np.zeros(1, np.uint64)
    count = np.arange(int(np.prod(shape)), dtype=np.uint64)
    words = philox4x32((count, zeros, zeros, zeros), (stream, 0))[0]
    return torch.from_numpy((words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)).view(
        shape
    )
