"""Compiles for a GPU that is not there what a wrapper around Triton kernels would launch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", torch.int64: "*i64"}


@dataclass(frozen=True)
class Launch:
    """One launch: its kernel specialised to its arguments as the launcher would."""

    kernel: Any
    grid: tuple[int, ...]
    signature: dict[str, str]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], Any]
    options: dict[str, Any]

    @property
    def compiled_from(self) -> tuple[Any, ...]:
        """All that the compiler sees."""
        return self.signature, self.constants, self.attributes, self.options

    def compile(self) -> Any:
        source = ASTSource(self.kernel, self.signature, self.constants, self.attributes)
        return triton.compile(source, target=HOPPER, options=self.options)


@dataclass(frozen=True)
class Recorder:
    """Stands in a module where a kernel was, and notes launches."""

    kernel: Any
    launches: list[Launch] = field(default_factory=list)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **named: Any) -> None:
            values = dict(zip(self.kernel.arg_names, args, strict=False))
            values |= {name: named.pop(name) for name in self.kernel.arg_names[len(args) :]}
            signature: dict[str, str] = {}
            constants: dict[tuple[int, ...], Any] = {}
            attributes: dict[tuple[int, ...], Any] = {}
            for i, param in enumerate(self.kernel.params):
                value = values[param.name]
                signature[param.name] = "constexpr" if param.is_constexpr else _type(value)
                if param.is_constexpr:
                    constants[(i,)] = value
                elif not param.do_not_specialize and _divisible(value):
                    attributes[(i,)] = [["tt.divisibility", 16]]
            self.launches.append(Launch(self.kernel, grid, signature, constants, attributes, named))

        return launch


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def _divisible(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.storage_offset() * value.itemsize % 16 == 0  # an allocation is
    return isinstance(value, int) and value % 16 == 0
