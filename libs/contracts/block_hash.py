"""Chained keyed hashes of prompt blocks: what the Redis index knows a prefix by.

A hash names one block and everything before it: root = H(key, tenant, model, adapter, tokenizer, salt), then
h_i = H(key, h_{i−1}, ids of block i). BLAKE2b with a deployment key (RFC 7693), 16 bytes. They only choose a cell;
blocks are matched by tokens.
"""

import hashlib
import struct
from collections.abc import Sequence

HASH_BYTES = 16


def root_hash(
    key: bytes, *, tenant: str, model_digest: str, adapter: str, tokenizer_digest: str, salt: str = ""
) -> bytes:
    """The parent of every first block. `key` is 1 to 64 bytes and secret to the deployment."""
    parts = [part.encode() for part in (tenant, model_digest, adapter, tokenizer_digest, salt)]
    framed = b"".join(
        struct.pack("<I", len(part)) + part for part in parts
    )  # lengths: no two lists of parts look alike
    return hashlib.blake2b(framed, digest_size=HASH_BYTES, key=key).digest()


def block_hashes(key: bytes, root: bytes, ids: Sequence[int], block_tokens: int) -> tuple[bytes, ...]:
    """One hash per full block of `ids` (uint32 each); a partial tail has none."""
    hashes, parent = [], root
    block = struct.Struct(f"<{block_tokens}I")
    for start in range(0, len(ids) - block_tokens + 1, block_tokens):
        tokens = block.pack(*ids[start : start + block_tokens])
        parent = hashlib.blake2b(parent + tokens, digest_size=HASH_BYTES, key=key).digest()
        hashes.append(parent)
    return tuple(hashes)
