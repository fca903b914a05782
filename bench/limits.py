"""The only definition of the limits: what the machine can read and multiply, what a scenario needs, and the quotient.

A limit is a roofline: no run can take less than its bytes at the read bandwidth nor less than its operations at the
matrix rate. Bytes are those that must come from memory, each weight once per decode step and each prompt's KV once per
step; operations are those of the matrix products and of attention. What a server adds to that is not in it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.scenarios import Scenario
from libs.engine.model_config import ModelConfig

BYTES_READ: Final = 512 << 20
GEMM_SIZE: Final = 1024
READS, GEMMS = 7, 12
VALUE_BYTES: Final = 2  # bfloat16


@dataclass(frozen=True, slots=True)
class Machine:
    """What the probes found at this moment."""

    read_bytes_s: float
    matrix_ops_s: float

    def seconds(self, work: "Work") -> float:
        return max(work.read_bytes / self.read_bytes_s, work.ops / self.matrix_ops_s)


@dataclass(frozen=True, slots=True)
class Work:
    read_bytes: float
    ops: float

    def __add__(self, other: "Work") -> "Work":
        return Work(self.read_bytes + other.read_bytes, self.ops + other.ops)

    def times(self, count: float) -> "Work":
        return Work(self.read_bytes * count, self.ops * count)


def probe(threads: int) -> Machine:
    """Best of a few short runs on `threads` threads: a limit is what the machine can do when nothing disturbs it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        values = torch.ones(BYTES_READ // 4, dtype=torch.float32)
        square = torch.ones(GEMM_SIZE, GEMM_SIZE, dtype=torch.bfloat16)
        product = torch.empty_like(square)
        read_s = _best_s(lambda: torch.sum(values), READS)
        gemm_s = _best_s(lambda: torch.mm(square, square, out=product), GEMMS)
    finally:
        torch.set_num_threads(before)
    return Machine(BYTES_READ / read_s, 2 * GEMM_SIZE**3 / gemm_s)


def _best_s(work: Callable[[], object], repeats: int) -> float:
    taken_s = []
    for _ in range(repeats + 1):  # the first touches the memory and chooses the kernels
        started_s = time.perf_counter()
        work()
        taken_s.append(time.perf_counter() - started_s)
    return min(taken_s[1:])


class ModelCost:
    """Bytes and operations of steps of one model in bfloat16."""

    def __init__(self, model: ModelConfig) -> None:
        kv_size = model.kv_heads * model.head_dim
        attention = model.hidden_size * model.head_dim * model.heads * 2 + model.hidden_size * kv_size * 2
        self._layer_values = model.layers * (attention + 3 * model.hidden_size * model.ffn_size)
        self._head_values = model.vocab_size * model.hidden_size
        self._attention_ops = 4 * model.layers * model.heads * model.head_dim  # per query and key: scores and sums
        self.kv_bytes_per_token = 2 * VALUE_BYTES * model.layers * kv_size

    @property
    def weight_bytes(self) -> int:
        """Read whole in each step; a tied embedding is the head."""
        return VALUE_BYTES * (self._layer_values + self._head_values)

    def prompt(self, tokens: int, start: int = 0) -> Work:
        """Tokens `start` to `tokens` of one prompt; the head sees the last one only, and the weights are read once."""
        new = tokens - start
        keys = (start + 1 + tokens) / 2 * new  # the mean query sees half of the new keys and all before
        ops = 2 * self._layer_values * new + self._attention_ops * keys + 2 * self._head_values
        return Work(self.weight_bytes + self.kv_bytes_per_token * start, ops)

    def decode(self, context_tokens: float, batch: float, shared_tokens: int = 0) -> Work:
        """One step that gives `batch` sequences a token each; KV that they share need be read but once."""
        ops = 2 * (self._layer_values + self._head_values) + self._attention_ops * context_tokens
        kv_tokens = shared_tokens + (context_tokens - shared_tokens) * batch
        return Work(self.weight_bytes + self.kv_bytes_per_token * kv_tokens, ops * batch)


def limits(scenario: Scenario, model: ModelConfig, machine: Machine) -> dict[str, float]:
    """The best possible value of each figure that has a limit, by the names of bench.figures.KINDS."""
    cost = ModelCost(model)
    if scenario.poisson:
        return {"good_share": 1.0, "good_s": scenario.poisson.rate_s}
    if scenario.late:
        step_s = machine.seconds(cost.decode(scenario.prompt_tokens + scenario.late.after_tokens, scenario.requests))
        prompt_s = machine.seconds(cost.prompt(scenario.late.prompt_tokens))
        return {"ttft_ms": prompt_s * 1e3, "itl_p99_ms": step_s * 1e3, "itl_max_ms": step_s * 1e3}
    first_s = machine.seconds(cost.prompt(scenario.prompt_tokens, scenario.shared_tokens))
    if scenario.new_tokens == 1:
        return {"ttft_ms": first_s * 1e3, "prompt_tok_s": scenario.prompt_tokens / first_s}
    step_s = machine.seconds(_mean_decode(cost, scenario))
    total_s = _total_s(cost, scenario, machine)
    if scenario.shared_tokens:
        return {"total_s": total_s, "ttft_ms": first_s * 1e3, "tpot_ms": step_s * 1e3}
    found = {"ttft_ms": first_s * 1e3, "tpot_ms": step_s * 1e3}
    found["tok_s"] = scenario.requests * scenario.new_tokens / total_s
    if scenario.concurrency > 1:
        found |= {"itl_p50_ms": step_s * 1e3, "itl_p99_ms": step_s * 1e3}
    return found


def _mean_decode(cost: ModelCost, scenario: Scenario) -> Work:
    context_tokens = scenario.prompt_tokens + scenario.new_tokens / 2
    return cost.decode(context_tokens, scenario.concurrency, scenario.shared_tokens)


def _total_s(cost: ModelCost, scenario: Scenario, machine: Machine) -> float:
    """All requests. One stream cannot overlap its parts; several can, so that only the sums bound them."""
    waves = math.ceil(scenario.requests / scenario.concurrency)
    steps = _mean_decode(cost, scenario).times(waves * (scenario.new_tokens - 1))
    prompt = cost.prompt(scenario.prompt_tokens, scenario.shared_tokens)
    if scenario.concurrency == 1:
        return machine.seconds(prompt) * scenario.requests + machine.seconds(steps)
    prompts = Work(0, prompt.ops * scenario.requests)  # their weights may be read with those of the steps
    if scenario.shared_tokens:
        prompts += Work(0, cost.prompt(scenario.shared_tokens).ops)
    return machine.seconds(steps + prompts)
