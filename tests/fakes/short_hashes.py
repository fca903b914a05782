"""A tokenizer process whose hashes of blocks have eight bits: of 300 different ones many are equal."""

from libs.contracts import block_hash
from libs.runtime.process import run
from services.tokenizer.__main__ import main

if __name__ == "__main__":
    block_hash.HASH_BYTES = 1
    run(main)
