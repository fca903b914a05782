"""A packed model as the kernels take it: structures that point into its parts, which live as long as they do."""

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from kernels.native.structs import DTYPES, HrLayer, HrLinear, HrModel
from libs.engine.model_config import ModelConfig
from libs.engine.native.packed_file import Bytes, address
from libs.engine.native.parts import BIAS, Linear, linears


class NativeModel:
    """One model in one rounding class; read-only. `address` is that of its HrModel."""

    def __init__(self, config: ModelConfig, dtype: str, parts: Mapping[str, Bytes]) -> None:
        self.config, self.dtype = config, dtype
        self._parts = parts
        self._cuts = {linear.name: _cuts(linear) for linear in linears(config)}
        self._linears = {linear.name: self._linear(linear) for linear in linears(config)}
        self._layers = (HrLayer * config.layers)(*map(self._layer, range(config.layers)))
        self._model = self._whole()

    @property
    def address(self) -> int:
        return ctypes.addressof(self._model)

    def _linear(self, linear: Linear) -> HrLinear:
        cuts = self._cuts[linear.name]
        bias = self._parts.get(linear.name + BIAS)
        return HrLinear(
            data=address(self._parts[linear.name]),
            bias=None if bias is None else address(bias),
            cuts=ctypes.addressof(cuts),
            segments=len(cuts) - 1,
            n=linear.outputs,
            k=linear.inputs,
            dtype=DTYPES[self.dtype],
        )

    def _layer(self, index: int) -> HrLayer:
        return HrLayer(
            attention_norm=address(self._parts[f"{index}.attention_norm"]),
            qkv=self._linears[f"{index}.qkv"],
            o=self._linears[f"{index}.o"],
            ffn_norm=address(self._parts[f"{index}.ffn_norm"]),
            gate_up=self._linears[f"{index}.gate_up"],
            down=self._linears[f"{index}.down"],
        )

    def _whole(self) -> HrModel:
        config, parts = self.config, self._parts
        head = self._linears["embedding" if config.tied_embeddings else "head"]
        return HrModel(
            layers=config.layers,
            hidden=config.hidden_size,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            ffn=config.ffn_size,
            vocab=config.vocab_size,
            positions=config.max_position_tokens,
            dtype=DTYPES[self.dtype],
            rms_eps=config.rms_eps,
            scale=np.float32(config.head_dim**-0.5),
            embedding=ctypes.addressof(self._linears["embedding"]),
            layer=ctypes.addressof(self._layers),
            final_norm=address(parts["final_norm"]),
            head=ctypes.addressof(head),
            cos=address(parts["cos"]),
            sin=address(parts["sin"]),
        )


def _cuts(linear: Linear) -> "ctypes.Array[ctypes.c_int32]":
    bounds: Sequence[int] = linear.product.cuts or (0, linear.inputs)
    return (ctypes.c_int32 * len(bounds))(*bounds)
