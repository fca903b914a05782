"""Decode attention in Triton: against the reference and itself in the interpreter, and compiled for Hopper."""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernels.paged_attention import paged_attention, plan_attention
from kernels.segments import PIECE_TOKENS

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (the dev group has it, on Linux)", allow_module_level=True)

from kernels.triton import paged_decode_attention as subject
from tests.kernels.triton_interpreter import Interpreter
from tests.kernels.triton_launches import Launch, Recorder

S = PIECE_TOKENS
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-3}
SHARED_BYTES = 227 * 1024  # that one block of threads may use on Hopper
MATRIX_INSTRUCTION = re.compile(r"\b(?:wgmma\.mma_async|mma|wmma)\.\S+")


@dataclass(frozen=True)
class Batch:
    """Arguments of the operation but the layer, which is 1 of 2."""

    q: torch.Tensor
    pool: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor

    @property
    def args(self) -> tuple[Any, ...]:
        return self.q, self.pool, 1, self.tables, self.lengths, self.q.shape[2] ** -0.5

    def row(self, r: int, blocks: int) -> "Batch":
        """Sequence r alone, under a table no wider than it needs."""
        return replace(
            self,
            q=self.q[r : r + 1].clone(),
            tables=self.tables[r : r + 1, :blocks].clone(),
            lengths=self.lengths[r : r + 1].clone(),
        )

    def reference(self) -> torch.Tensor:
        plan = plan_attention(torch.arange(len(self.q) + 1), self.lengths - 1, self.tables.clamp(min=0), self.pool)
        return paged_attention(self.q, self.pool, 1, plan, self.q.shape[2] ** -0.5)


def paged(kv: list[torch.Tensor], q: torch.Tensor, T: int, dtype: torch.dtype, unwritten: float = torch.nan) -> Batch:
    """Each sequence's [length, 2, H, D] scattered over a pool's blocks in random order; -1 where a table ends."""
    used = [-(-len(sequence) // T) for sequence in kv]
    H, D = kv[0].shape[2:]
    free = iter(1 + torch.randperm(sum(used) + 1))  # block 0, where a masked table entry points, is never in use
    pool = torch.full((sum(used) + 2, 2, 2, H, T, D), unwritten, dtype=dtype)
    tables = torch.full((len(kv), max(used) + 1), -1)
    for r, sequence in enumerate(kv):
        for b in range(used[r]):
            tables[r, b] = next(free)
            part = sequence[b * T : (b + 1) * T]
            pool[tables[r, b], 1, :, :, : len(part)] = part.permute(1, 2, 0, 3).to(dtype)
    return Batch(q, pool, tables, torch.tensor([len(sequence) for sequence in kv]))


def sequences(lengths: list[int], Q: int, H: int, D: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    return [torch.randn(length, 2, H, D) for length in lengths], torch.randn(len(lengths), Q, D)


def exact(kv: torch.Tensor, q: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[Q, D] in float64, of the inputs as the pool's dtype has them."""
    k, v = kv.to(dtype).double().repeat_interleave(q.shape[0] // kv.shape[2], dim=2).unbind(1)
    scores = torch.einsum("qd,sqd->qs", q.to(dtype).double(), k) * q.shape[1] ** -0.5
    return torch.einsum("qs,sqd->qd", scores.softmax(-1), v)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    process = Interpreter()
    yield process
    process.close()


def attend(interpreter: Interpreter, batch: Batch) -> torch.Tensor:
    out = interpreter.call(subject.__name__, "paged_decode_attention", *batch.args)
    assert isinstance(out, torch.Tensor)
    return out


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("Q", "H", "D", "T"), [(6, 2, 40, 16), (3, 3, 64, 32), (70, 1, 16, 64)])
def test_equals_the_reference(
    rng: np.random.Generator, interpreter: Interpreter, dtype: torch.dtype, Q: int, H: int, D: int, T: int
) -> None:
    """Odd head counts, head dims and lengths agree with the torch kernel, and with softmax in float64."""
    kv, q = sequences([1, S - 1, S, S + 1, int(rng.integers(2, 3 * S))], Q, H, D)
    batch = paged(kv, q, T, dtype)
    out = attend(interpreter, batch)

    for expected in (batch.reference(), torch.stack([exact(*row, dtype) for row in zip(kv, q, strict=True)])):
        assert (out - expected).norm() <= TOLERANCE[dtype] * expected.norm()


def test_huge_scores_do_not_overflow(rng: np.random.Generator, interpreter: Interpreter) -> None:
    """Pieces whose maxima are far apart merge without infinities.

    Scores of 1e5 are rounded to a hundredth, so no two keys have scores closer than hundreds.
    """
    kv, q = sequences([2 * S + 9], 4, 2, 16)
    kv[0][:, 0] = torch.randperm(2 * S + 9)[:, None, None] / 100
    batch = paged(kv, 1e4 * q[..., :1].sign().expand_as(q), 16, torch.float32)
    torch.testing.assert_close(attend(interpreter, batch), batch.reference(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_alone_or_in_any_batch(rng: np.random.Generator, interpreter: Interpreter, dtype: torch.dtype) -> None:
    """A sequence has the same bits alone under a narrow table, and among others in another order."""
    batch = paged(*sequences([40, 2 * S + 30, 1, S + 1], 6, 2, 24), 16, dtype)
    out = attend(interpreter, batch)

    order = torch.from_numpy(rng.permutation(4))
    shuffled = Batch(batch.q[order], batch.pool, batch.tables[order], batch.lengths[order])
    assert same_bits(attend(interpreter, shuffled), out[order])
    for r, length in enumerate(batch.lengths.tolist()):
        assert same_bits(attend(interpreter, batch.row(r, -(-length // 16)))[0], out[r]), r


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_block_size_and_unwritten_slots(rng: np.random.Generator, interpreter: Interpreter, dtype: torch.dtype) -> None:
    """The same bits from blocks of 16, 32 and 64 tokens, whatever lies in slots that hold no token yet."""
    kv, q = sequences([S + 45, 7], 5, 1, 48)
    first = attend(interpreter, paged(kv, q, 16, dtype, unwritten=0.0))
    assert first.isfinite().all()
    for T, unwritten in ((16, torch.nan), (32, torch.inf), (64, torch.nan)):
        assert same_bits(attend(interpreter, paged(kv, q, T, dtype, unwritten)), first), (T, unwritten)


def test_a_row_of_padding_gives_zeros(rng: np.random.Generator, interpreter: Interpreter) -> None:
    """A sequence of length 0 reads nothing and changes nothing."""
    batch = paged(*sequences([S + 1, 9], 4, 2, 16), 16, torch.float32)
    lengths, tables = batch.lengths.clone(), batch.tables.clone()
    lengths[1], tables[1] = 0, -1
    out = attend(interpreter, replace(batch, lengths=lengths, tables=tables))
    assert same_bits(out[0], attend(interpreter, batch)[0])
    assert same_bits(out[1], torch.zeros(4, 16))


@pytest.mark.parametrize(
    "wrong",
    [
        {"q": torch.zeros(2, 4, 8)},
        {"q": torch.zeros(2, 3, 16)},
        {"q": torch.zeros(2, 4, 129), "pool": torch.zeros(3, 2, 2, 2, 16, 129)},
        {"q": torch.zeros(2, 4, 16, dtype=torch.bfloat16)},
        {"pool": torch.zeros(3, 2, 2, 2, 16, 16, dtype=torch.float16)},
        {"pool": torch.zeros(3, 2, 2, 2, 24, 16)},
        {"tables": torch.zeros(1, 3, dtype=torch.int64)},
        {"tables": torch.zeros(3, 2, dtype=torch.int64).T},
        {"lengths": torch.ones(2)},
    ],
)
def test_wrong_shapes_and_dtypes_are_refused(wrong: dict[str, torch.Tensor]) -> None:
    """Nothing is launched on arguments that the kernel would misread."""
    right = Batch(
        q=torch.zeros(2, 4, 16),
        pool=torch.zeros(3, 2, 2, 2, 16, 16),
        tables=torch.zeros(2, 3, dtype=torch.int64),
        lengths=torch.ones(2, dtype=torch.int64),
    )
    with pytest.raises(AssertionError):
        subject.paged_decode_attention(*replace(right, **wrong).args)


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Recorder, Recorder]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    attending, merging = Recorder(subject._attend_piece_kernel), Recorder(subject._merge_pieces_kernel)
    monkeypatch.setattr(subject, "_attend_piece_kernel", attending)
    monkeypatch.setattr(subject, "_merge_pieces_kernel", merging)
    return attending, merging


def launches(
    recorders: tuple[Recorder, Recorder], dtype: torch.dtype, group: int, rows: int = 3, blocks: int = 20, D: int = 64
) -> tuple[Launch, Launch]:
    q = torch.empty(rows, 2 * group, D, device="meta")
    pool = torch.empty(50, 4, 2, 2, 16, D, dtype=dtype, device="meta")
    tables = torch.empty(rows, blocks, dtype=torch.int64, device="meta")
    subject.paged_decode_attention(q, pool, rows % 4, tables, tables[:, 0].contiguous(), 0.125)
    attending, merging = recorders
    return attending.launches[-1], merging.launches[-1]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_nothing_of_a_batch_is_compiled_in(recorders: tuple[Recorder, Recorder], dtype: torch.dtype) -> None:
    """One pair of kernels serves every number of sequences, every width of the tables and every layer."""
    first = launches(recorders, dtype, group=3)
    for rows, blocks in ((1, 1), (2, 16), (16, 1), (32, 4096)):
        others = launches(recorders, dtype, group=3, rows=rows, blocks=blocks)
        assert [launch.compiled_from for launch in others] == [launch.compiled_from for launch in first]
        assert [launch.grid[0] for launch in others] == [rows, rows]


def test_every_group_of_heads_takes_the_same_instruction(recorders: tuple[Recorder, Recorder]) -> None:
    """For Hopper one query head per key and 65 compile to the same warpgroup products of 64 rows, bfloat16 inputs."""
    found = []
    for group in (1, 7, 65):
        attending, _ = launches(recorders, torch.bfloat16, group)
        compiled = attending.compile()
        assert compiled.asm["cubin"].startswith(b"\x7fELF")
        found.append(sorted(MATRIX_INSTRUCTION.findall(compiled.asm["ptx"])))
    assert found[0] == found[1] == found[2] != []
    assert all(re.fullmatch(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.bf16\.bf16", op) for op in found[0])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_widest_head_fits(recorders: tuple[Recorder, Recorder], dtype: torch.dtype) -> None:
    """For Hopper a piece of the widest heads that the wrapper lets in needs no more shared memory than there is."""
    attending, _ = launches(recorders, dtype, group=3, D=subject.MAX_HEAD_DIM[dtype])
    assert attending.compile().metadata.shared <= SHARED_BYTES


def test_float32_is_multiplied_as_float32(recorders: tuple[Recorder, Recorder]) -> None:
    """For Hopper no matrix instruction of fewer bits takes part in the float32 class."""
    attending, _ = launches(recorders, torch.float32, group=3, D=32)
    ptx = attending.compile().asm["ptx"]
    assert MATRIX_INSTRUCTION.findall(ptx) == []
    assert "tf32" not in ptx and "fma.rn.f32" in ptx


def test_a_merge_rounds_as_the_contract_says(recorders: tuple[Recorder, Recorder]) -> None:
    """For Hopper: products fused with the sum where the contract has an fma, one division, rounded to nearest."""
    _, merging = launches(recorders, torch.bfloat16, group=3, D=32)
    ptx = merging.compile().asm["ptx"]
    assert len(re.findall(r"\bfma\.rn\.f32", ptx)) == 2  # one of 32 lanes' o, and l
    assert re.findall(r"\bdiv\.\S+", ptx) == ["div.rn.f32"]
