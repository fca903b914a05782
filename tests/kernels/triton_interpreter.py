"""Runs a Triton operation in Triton's interpreter, in a process of its own: the mode is chosen once, at the import."""

import importlib
import io
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch


class Interpreter:
    """One process with TRITON_INTERPRET=1; this process and what it starts else stay as they are."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would bring an imported triton along
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_interpret)

    def call(self, module: str, function: str, *args: Any) -> Any:
        """What `module.function` returns for tensors and numbers, computed there."""
        return _loaded(self._pool.submit(_call, module, function, _dumped(args)).result())

    def close(self) -> None:
        self._pool.shutdown()


def _call(module: str, function: str, args: bytes) -> bytes:
    return _dumped(getattr(importlib.import_module(module), function)(*_loaded(args)))


def _dumped(value: Any) -> bytes:
    torch.save(value, buffer := io.BytesIO())
    return buffer.getvalue()


def _loaded(value: bytes) -> Any:
    return torch.load(io.BytesIO(value))


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    builder = importlib.import_module("triton.runtime.interpreter").InterpreterBuilder
    builder.cast_impl = _rounding_cast(builder.cast_impl)
    builder.create_dot = _bfloat16_dot(builder.create_dot, builder.cast_impl)


def _rounding_cast(cast: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter cuts float32 to bfloat16, which lies in its arrays as uint16; hardware rounds to nearest even."""

    def rounding_cast(self: Any, src: Any, dst_type: Any) -> Any:
        if not (src.dtype.scalar.is_fp32() and dst_type.scalar.is_bf16()):
            return cast(self, src, dst_type)
        rounded = torch.from_numpy(src.data).bfloat16().view(torch.uint16)
        return type(src)(rounded.numpy(), dst_type.scalar)

    return rounding_cast


def _bfloat16_dot(dot: Callable[..., Any], cast: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter multiplies the uint16 of a bfloat16 as integers; hardware multiplies floats, exactly."""

    def bfloat16_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        a, b = (cast(self, x, d.dtype.scalar) if x.dtype.scalar.is_bf16() else x for x in (a, b))
        return dot(self, a, b, d, *rest)

    return bfloat16_dot
