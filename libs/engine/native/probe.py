"""A tiny model of exact integers' making, stepped once at start: its bits tell arithmetics apart.

It passes whatever a real step passes: several layers, heads, segments and pieces, a chunk beside decode rows, every
filter of the sampler, log-probabilities, and the KV as stored.
"""

import hashlib
from typing import Final

import numpy as np

from libs.contracts.kv_layout import kv_dtype_of
from libs.contracts.messages import SamplingParams
from libs.engine.adjustment import Adjustment, SeenIds
from libs.engine.checkpoint import Checkpoint
from libs.engine.families import Biases
from libs.engine.model_config import ModelConfig
from libs.engine.native.engine import NativeEngine
from libs.engine.native.kernels import Kernels
from libs.engine.native.loading import pack_private
from libs.engine.native.pool import NativePool
from libs.engine.noise import noise
from libs.engine.numerics_class import DIGEST_DIGITS
from libs.engine.rope import Rope
from libs.engine.rows import SampleSpec, StepRow
from libs.engine.tensors import expected_shapes

CONFIG: Final = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=301,
    hidden_size=96,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=32,
    ffn_size=288,
    rms_eps=1e-5,
    rope=Rope(10000.0),
    max_position_tokens=512,
    tied_embeddings=False,
    eos_ids=(),
    biases=Biases(qkv=True),
    has_qk_norm=True,
    windows=(0, 100),
)
BLOCK_TOKENS: Final = 16
PROMPT_TOKENS: Final = 290  # more than a piece of attention
FILTERS: Final = (
    SamplingParams(temperature=0.0, logprobs=0),
    SamplingParams(temperature=1.0, seed=1, logprobs=0),
    SamplingParams(temperature=0.7, seed=2, min_p=0.01, top_k=40, top_p=0.9, logprobs=0),
)


def probe_digest(kernels: Kernels, dtype: str) -> str:
    """Hash over the bits of logits, tokens, log-probabilities and KV of two fixed steps."""
    blocks = -(-(PROMPT_TOKENS + 1) // BLOCK_TOKENS)
    pool = NativePool.private(CONFIG.kv_layout(BLOCK_TOKENS, kv_dtype_of(dtype)), blocks * (len(FILTERS) + 1))
    engine = NativeEngine(kernels, pack_private(kernels, CONFIG, checkpoint(), dtype), pool)
    ids = [(7 * i + 3) % CONFIG.vocab_size for i in range(PROMPT_TOKENS)]
    tables = [range(blocks * i, blocks * (i + 1)) for i in range(len(FILTERS) + 1)]
    first = [StepRow(ids, 0, table, None) for table in tables[1:]]
    second = [
        StepRow(ids[:37], 0, tables[0], None),
        *(
            StepRow(
                [5 + i], PROMPT_TOKENS, table, SampleSpec(params, i, i, (i,), adjustment=_adjustment() if i else None)
            )
            for i, (table, params) in enumerate(zip(tables[1:], FILTERS, strict=True))
        ),
    ]
    digest = hashlib.sha256(engine.logits(first).tobytes())
    for drawn in engine.step(second):
        if drawn is not None:
            digest.update(np.int32(drawn.token_id).tobytes() + np.float32(drawn.logprob or 0).tobytes())
    digest.update(pool.blocks_NB.tobytes())
    return digest.hexdigest()[:DIGEST_DIGITS]


def _adjustment() -> Adjustment:
    """Every kind but masks, which only ban."""
    ids_B = np.arange(0, CONFIG.vocab_size, 11, dtype=np.int32)
    seen = SeenIds(range(0, CONFIG.vocab_size, 3), range(0, CONFIG.vocab_size, 7))
    return Adjustment(seen, 1.3, 0.3, 0.7, bias_ids_B=ids_B, bias_B=noise(0, len(ids_B)))


def checkpoint() -> Checkpoint:
    """The weights of CONFIG: noise of another stream for each tensor."""
    shapes = dict(expected_shapes(CONFIG))
    streams = {name: stream for stream, name in enumerate(shapes)}
    return Checkpoint(
        shapes=shapes,
        dtypes=dict.fromkeys(shapes, "F32"),
        read=lambda name: noise(streams[name], *shapes[name]),
    )
