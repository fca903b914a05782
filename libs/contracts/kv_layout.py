"""The numbers of a KV pool: block size, header, offsets. docs/kv-layout.md explains them; no torch here.

Axes: N blocks, L layers, C = 2 (K, V), H kv heads, T tokens, D head dim. A pool is `[N, L, C, H, T, D]`, contiguous,
behind a header: 64 bytes of fixed fields, then N fill counts (uint32, tokens written), padded to 4,096 bytes.
"""

import hashlib
import struct
from dataclasses import dataclass

MAGIC = b"HRKVPOOL"
VERSION = 1
BLOCK_TOKENS = (16, 32, 64)
DTYPE_BYTES = {"bfloat16": 2, "float32": 4}
KV_DTYPES = {  # of KV, by the dtype of the weights: the only one that goes with it
    "float32": "float32",
    "bfloat16": "bfloat16",
    "int8": "bfloat16",
    "int8w": "bfloat16",
}
TILE_TAG_PLAIN = "plain"  # [T, D] rows as they are
CPU_TILE_TAGS = {
    "bfloat16": "cpu-vnni16",
    "float32": "cpu-dt",
}  # of the native CPU kernels; docs/kv-layout.md draws them
FIXED_HEADER = struct.Struct("<8sIIQ32s")  # magic, version, header bytes, blocks, layout fingerprint
FILL_COUNTS_OFFSET = 64
PAGE_BYTES = 4096
MAX_BLOCKS = 1 << 24


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Shape and type of one block, the same in every pool of a cell."""

    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    dtype: str
    tile_tag: str = TILE_TAG_PLAIN

    def __post_init__(self) -> None:
        if self.block_tokens not in BLOCK_TOKENS:
            raise ValueError(f"block_tokens must be one of {BLOCK_TOKENS}, not {self.block_tokens}")
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"KV dtype must be one of {tuple(DTYPE_BYTES)}, not {self.dtype!r}")
        if min(self.layers, self.kv_heads, self.head_dim) < 1:
            raise ValueError("layers, kv_heads and head_dim must be positive")

    @property
    def token_bytes(self) -> int:
        """Bytes of K and V of one token over all layers."""
        return self.layers * 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def block_bytes(self) -> int:
        return self.token_bytes * self.block_tokens

    @property
    def fingerprint(self) -> bytes:
        """32 bytes; two pools exchange blocks as they are only when these are equal."""
        text = (
            f"NLCHTD:{self.layers}:2:{self.kv_heads}:{self.block_tokens}:{self.head_dim}:{self.dtype}:{self.tile_tag}"
        )
        return hashlib.sha256(text.encode()).digest()

    def header_bytes(self, blocks: int) -> int:
        used = FILL_COUNTS_OFFSET + 4 * blocks
        return -(-used // PAGE_BYTES) * PAGE_BYTES

    def pool_bytes(self, blocks: int) -> int:
        return self.header_bytes(blocks) + blocks * self.block_bytes

    def pack_header(self, blocks: int) -> bytes:
        if not 1 <= blocks <= MAX_BLOCKS:
            raise ValueError(f"a pool has 1 to {MAX_BLOCKS} blocks, not {blocks}")
        return FIXED_HEADER.pack(MAGIC, VERSION, self.header_bytes(blocks), blocks, self.fingerprint)

    def check_header(self, header: bytes, file_bytes: int) -> int:
        """The number of blocks of the pool behind `header`.

        Raises ValueError when the pool is of another kind, layout or size.
        """
        magic, version, header_bytes, blocks, fingerprint = FIXED_HEADER.unpack_from(header)
        if magic != MAGIC or version != VERSION:
            raise ValueError("not a KV pool of this version")
        if fingerprint != self.fingerprint:
            raise ValueError("the pool has another KV layout (layers, heads, head dim, block tokens or dtype)")
        if (
            not 1 <= blocks <= MAX_BLOCKS
            or header_bytes != self.header_bytes(blocks)
            or file_bytes < self.pool_bytes(blocks)
        ):
            raise ValueError("the pool is smaller than its header says")
        return int(blocks)


def kv_dtype_of(dtype: str) -> str:
    """The KV dtype that goes with weights of `dtype`. Raises ValueError for none that is known."""
    if dtype not in KV_DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(KV_DTYPES)}, not {dtype!r}")
    return KV_DTYPES[dtype]


def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens` tokens."""
    return -(-tokens // block_tokens)
