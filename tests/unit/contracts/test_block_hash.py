"""A prefix has one name, and only those who share its key, tenant and model know it."""

import pytest

from libs.contracts.block_hash import block_hashes, root_hash

KEY = b"k" * 32
BASE = {"tenant": "t", "model_digest": "m", "adapter": "", "tokenizer_digest": "z"}


def test_a_hash_covers_everything_before_it() -> None:
    """Changing the first token changes every later hash; a common prefix shares its hashes."""
    root = root_hash(KEY, **BASE)
    one = block_hashes(KEY, root, list(range(48)), 16)

    assert block_hashes(KEY, root, [9, *range(1, 48)], 16)[2] != one[2]
    assert block_hashes(KEY, root, [*range(32), 7], 16) == one[:2]


def test_a_partial_tail_has_no_hash() -> None:
    """Only full blocks can be shared by name."""
    root = root_hash(KEY, **BASE)

    assert [len(block_hashes(KEY, root, [1] * n, 16)) for n in (0, 15, 16, 31, 32)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("field", BASE)
def test_every_part_of_the_key_separates_prefixes(field: str) -> None:
    """Another tenant, model, adapter or tokenizer never meets these blocks."""
    assert root_hash(KEY, **{**BASE, field: "other"}) != root_hash(KEY, **BASE)
    assert root_hash(b"other key", **BASE) != root_hash(KEY, **BASE)


def test_parts_cannot_be_shifted_into_each_other() -> None:
    """('ab', 'c') and ('a', 'bc') are different prefixes."""
    assert root_hash(KEY, **{**BASE, "tenant": "ab", "model_digest": "c"}) != root_hash(
        KEY, **{**BASE, "tenant": "a", "model_digest": "bc"}
    )
