"""A native step: a sequence's logits are torch's within rounding, and bit for bit its own whatever runs beside it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_int64, c_void_p

import numpy as np
import numpy.typing as npt
import pytest
import torch

from kernels.native.levels import LEVELS
from tests.kernels.native_linear import Native
from tests.kernels.native_step import VOCAB, Row, TinyModel, TinyPool

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "int8w": 3e-2, "int8": 5e-2}
LENGTH = 300  # longer than a piece of attention
LAYERS = 12  # more than are kept of hundreds of tokens
LATE_US = 400


@pytest.fixture(params=[level for level in LEVELS if level != "portable"], scope="module")
def native(request: pytest.FixtureRequest) -> Iterator[Native]:
    with Native(str(request.param), threads=2) as native:
        yield native


@pytest.fixture(params=TOLERANCE)
def model(request: pytest.FixtureRequest, native: Native, rng: np.random.Generator) -> TinyModel:
    return TinyModel(native, request.param)


def random_ids(rng: np.random.Generator, count: int) -> list[int]:
    return [int(i) for i in rng.integers(VOCAB, size=count)]


def table(tokens: int, first: int = 0, block_tokens: int = 16) -> list[int]:
    """Scattered blocks; tables of different `first` below 7 share none."""
    return [(first + 7 * i) % 96 for i in range(-(-tokens // block_tokens))]


def chunked(native: Native, model: TinyModel, ids: Sequence[int], chunk: int, last: int = 1) -> npt.NDArray[np.float32]:
    """Logits after `ids`, its last tokens fed one by one."""
    pool, blocks, logits = TinyPool(model), table(len(ids)), np.zeros(0, np.float32)
    base = 0
    while base < len(ids):
        n = 1 if base >= len(ids) - last else min(chunk, len(ids) - last - base)
        logits = pool.step(native, [Row(ids[base : base + n], base, blocks)])
        base += n
    return logits


@pytest.mark.parametrize("ffn", [160, 72])
def test_logits_are_torch_s(native: Native, rng: np.random.Generator, model: TinyModel, ffn: int) -> None:
    """Paged, chunked and fused, or with a width that the fused gate does not take, it is the same forward pass."""
    model = TinyModel(native, model.kind, ffn)
    ids = random_ids(rng, LENGTH)
    expected = model.forward(ids)[-1]

    logits = torch.from_numpy(chunked(native, model, ids, 128))[0]

    error = torch.linalg.vector_norm(logits - expected) / torch.linalg.vector_norm(expected)
    assert error <= TOLERANCE[model.kind]


@pytest.mark.parametrize(("chunk", "last"), [(1, 1), (16, 5), (100, 1), (LENGTH, 0), (37, 290)])
def test_chunks_do_not_show(native: Native, rng: np.random.Generator, model: TinyModel, chunk: int, last: int) -> None:
    """Whatever the chunks, the bits of the last logits are the same."""
    ids = random_ids(rng, LENGTH)

    assert chunked(native, model, ids, chunk, last).tobytes() == chunked(native, model, ids, 64).tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_neighbours_and_threads_do_not_show(
    native: Native, rng: np.random.Generator, model: TinyModel, threads: int
) -> None:
    """A row's logits have the bits it has alone: beside decode rows and chunks, with any number of threads."""
    lengths = (1, 17, 33, 270, 64)
    sequences = [random_ids(rng, length + tokens) for length, tokens in zip(lengths, (1, 1, 40, 1, 9), strict=True)]
    tables = [table(len(ids), first) for first, ids in enumerate(sequences)]
    alone = []
    for ids, blocks, length in zip(sequences, tables, lengths, strict=True):
        pool = TinyPool(model)
        pool.step(native, [Row(ids[:length], 0, blocks)])
        alone.append(pool.step(native, [Row(ids[length:], length, blocks)])[0].tobytes())

    with Native(str(native.library.hr_level().decode()), threads) as other:
        pool = TinyPool(model)
        pool.step(other, [Row(ids[:n], 0, t) for ids, t, n in zip(sequences, tables, lengths, strict=True)])
        rows = [Row(ids[n:], n, t) for ids, t, n in zip(sequences, tables, lengths, strict=True)]
        together = pool.step(other, rows)

    assert [row.tobytes() for row in together] == alone


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("ffn", [160, 72])
def test_late_threads_do_not_show(
    native: Native, rng: np.random.Generator, model: TinyModel, ffn: int, threads: int
) -> None:
    """Others compute their tiles meanwhile; what a thread writes when it comes back lies there already."""
    model = TinyModel(native, model.kind, ffn, layers=LAYERS)
    sequences = [random_ids(rng, length) for length in (17, 200, 210, 33, LENGTH)]
    tables = [table(len(ids), first) for first, ids in enumerate(sequences)]

    def bits(other: Native) -> list[bytes]:
        pool, found = TinyPool(model), []
        for begin, end in ((0, -9), (-9, -8), (-8, -2), (-2, -1)):
            rows = [
                Row(ids[begin:end], begin % len(ids), blocks) for ids, blocks in zip(sequences, tables, strict=True)
            ]
            found.append(pool.step(other, rows).tobytes())
        return [*found, pool.kv.view(torch.uint8).numpy().tobytes()]

    with Native(str(native.library.hr_level().decode()), threads) as other:
        expected = bits(other)
        for every in (3, 7, 20):
            with late(other, every):
                assert bits(other) == expected


@contextmanager
def late(native: Native, every: int) -> Iterator[None]:
    """Each thread of the team comes late with every so many-th share of tiles."""
    native.library.hr_test_be_late(c_void_p(native.context), c_int64(every), c_int64(LATE_US))
    yield
    native.library.hr_test_be_late(c_void_p(native.context), c_int64(0), c_int64(0))


def test_fill_counts_tell_what_is_written(native: Native, rng: np.random.Generator, model: TinyModel) -> None:
    """After a step each block of a row counts its tokens; blocks of nobody count none."""
    pool = TinyPool(model)

    pool.step(native, [Row(random_ids(rng, 20), 0, [5, 9]), Row(random_ids(rng, 16), 0, [2])])
    pool.step(native, [Row(random_ids(rng, 3), 20, [5, 9])])

    assert {int(block): int(pool.fill_counts[block]) for block in np.flatnonzero(pool.fill_counts)} == {
        5: 16,
        9: 7,
        2: 16,
    }


def test_a_row_that_is_not_finite_publishes_nothing(native: Native, rng: np.random.Generator, model: TinyModel) -> None:
    """Its neighbours draw what they draw without it."""
    bad, good = Row(random_ids(rng, 20), 0, [5, 9]), Row(random_ids(rng, 7), 0, [2])
    (expected,) = TinyPool(model).run(native, [good], None)
    pool = TinyPool(model)
    pool.step(native, [bad])
    pool.kv[5].fill_(torch.nan)
    pool.fill_counts[:] = 0

    poisoned = Row(random_ids(rng, 1), 20, [5, 9])
    rows = pool.run(native, [poisoned, good], None)

    assert [(row.is_nan, row.token) for row in rows] == [(1, -1), (0, expected.token)]
    assert np.flatnonzero(pool.fill_counts).tolist() == [2]


def test_rows_that_do_not_draw_get_no_token(native: Native, rng: np.random.Generator, model: TinyModel) -> None:
    """A chunk in the middle of a prompt writes its KV and answers nothing; greedy rows answer their greatest logit."""
    pool = TinyPool(model)
    rows = [Row(random_ids(rng, 20), 0, [5, 9], draws=False), Row(random_ids(rng, 7), 0, [2])]
    greatest = int(TinyPool(model).step(native, rows)[1].argmax())

    silent, drawing = pool.run(native, rows, None)

    assert (silent.token, drawing.token) == (-1, greatest)
    assert pool.fill_counts[[5, 9, 2]].tolist() == [16, 4, 7]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (Row([1, VOCAB], 0, [0]), "token id"),
        (Row([1, 2], 0, [96]), "block id"),
        (Row([1, 2], 639, [0] * 41), "position tables"),
        (Row([], 0, [0]), "rows"),
    ],
)
def test_what_is_out_of_bounds_is_refused(native: Native, model: TinyModel, row: Row, problem: str) -> None:
    """Nothing is read or written past the end of a table, a pool or a vocabulary."""
    with pytest.raises(AssertionError, match=problem):
        TinyPool(model).step(native, [row])
