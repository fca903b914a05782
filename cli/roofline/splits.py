"""Over how many devices a model must be split to fit, and what each split then holds and gives.

Tensor parallelism splits heads and matrices within a node (Shoeybi et al., Megatron-LM, arXiv:1909.08053), pipeline
parallelism splits the layers between nodes. Replicas of a split that fits multiply its figures.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cli.roofline.device import Device
from cli.roofline.formulas import DecodeCost, Precision, cost_per_million
from cli.roofline.shape import Shape

NODE_DEVICES: Final = 8  # joined by links fast enough for tensor parallelism
STAGES: Final = (2, 4, 8)
MEMORY_SHARE: Final = 0.9  # for weights and KV; the rest is for activations and the runtime


@dataclass(frozen=True, slots=True)
class Split:
    """Figures are of one device but for `sequences` and `tokens_s`."""

    tensor: int
    pipeline: int
    weight_bytes: float
    kv_budget_bytes: float  # what the weights leave; negative where they do not fit
    sequences: int  # of the given context, at the same time
    tokens_s: float  # generated with all of them; 0 where none fits
    million_cost: float | None  # of generated tokens, with all of them; None where none fits or no price is known

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline

    @property
    def fits(self) -> bool:
        return self.sequences > 0


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the model. `price_per_hour` is of one device; 0: unknown."""

    context_tokens: int
    prompt_tokens: int
    users: int
    price_per_hour: float = 0.0


def splits(shape: Shape, precision: Precision, device: Device, load: Load) -> list[Split]:
    """Every split worth a look, the smallest first."""
    return [_split(shape, precision, device, load, *sizes) for sizes in _sizes(shape)]


def _sizes(shape: Shape) -> Iterator[tuple[int, int]]:
    """(tensor, pipeline): within a node first, then over several nodes, each split as far as it can be."""
    tensors = [size for size in range(1, NODE_DEVICES + 1) if _divides(shape, size)]
    yield from ((tensor, 1) for tensor in tensors)
    yield from ((tensors[-1], stages) for stages in STAGES if stages <= shape.layers)


def _divides(shape: Shape, tensor: int) -> bool:
    """Each device gets whole heads; KV heads are divided, or repeated where there are fewer of them than devices."""
    return shape.heads % tensor == 0 and (shape.kv_heads % tensor == 0 or tensor % shape.kv_heads == 0)


def _split(shape: Shape, precision: Precision, device: Device, load: Load, tensor: int, pipeline: int) -> Split:
    cost, devices = DecodeCost.of(shape, precision), tensor * pipeline
    weight_bytes = shape.parameters * precision.weight_bytes / devices
    budget_bytes = device.memory_bytes * MEMORY_SHARE - weight_bytes
    sequence_bytes = cost.token_bytes * load.context_tokens / pipeline / min(tensor, shape.kv_heads)
    sequences = max(0, int(budget_bytes // sequence_bytes))
    # Stages work on different sequences at a time: each gives its share of them a token, then takes the next share.
    batch = sequences / pipeline
    read_s = (cost.weight_bytes / devices + sequence_bytes * batch) / device.bytes_s
    compute_s = cost.sequence_ops(load.context_tokens) * batch / devices / device.flops_s
    tokens_s = batch / max(read_s, compute_s)
    cost_each = cost_per_million(load.price_per_hour * devices, tokens_s) if load.price_per_hour and sequences else None
    return Split(tensor, pipeline, weight_bytes, budget_bytes, sequences, tokens_s, cost_each)
