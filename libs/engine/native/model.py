"""A packed model as the kernels take it: structures that point into its parts, which live as long as they do."""

import ctypes
from collections.abc import Mapping

import numpy as np

from kernels.native.structs import DTYPES, HrLayer, HrLinear, HrModel
from libs.engine.model_config import ModelConfig
from libs.engine.native.linear_struct import LinearStruct
from libs.engine.native.packed_file import Bytes, address
from libs.engine.native.parts import BIAS, linears


class NativeModel:
    """One model in one rounding class; read-only. `address` is that of its HrModel."""

    def __init__(self, config: ModelConfig, dtype: str, parts: Mapping[str, Bytes]) -> None:
        self.config, self.dtype = config, dtype
        self._parts = parts
        self._structs = {linear.name: LinearStruct(linear, dtype) for linear in linears(config)}
        self._linears = {name: self._linear(name) for name in self._structs}
        self._layers = (HrLayer * config.layers)(*map(self._layer, range(config.layers)))
        self._model = self._whole()

    @property
    def address(self) -> int:
        return ctypes.addressof(self._model)

    def _linear(self, name: str) -> HrLinear:
        struct, bias = self._structs[name].struct, self._parts.get(name + BIAS)
        struct.data = address(self._parts[name])
        struct.bias = None if bias is None else address(bias)
        return struct

    def _layer(self, index: int) -> HrLayer:
        return HrLayer(
            attention_norm=address(self._parts[f"{index}.attention_norm"]),
            q_norm=self._norm(f"{index}.q_norm"),
            k_norm=self._norm(f"{index}.k_norm"),
            is_windowed=self.config.window(index) > 0,
            qkv=self._linears[f"{index}.qkv"],
            o=self._linears[f"{index}.o"],
            ffn_norm=address(self._parts[f"{index}.ffn_norm"]),
            gate_up=self._linears[f"{index}.gate_up"],
            down=self._linears[f"{index}.down"],
        )

    def _norm(self, name: str) -> int | None:
        """Of queries or keys, which few families have."""
        return address(self._parts[name]) if name in self._parts else None

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
            window=max(config.windows, default=0),
            rms_eps=config.rms_eps,
            scale=np.float32(config.head_dim**-0.5),
            embedding=ctypes.addressof(self._linears["embedding"]),
            layer=ctypes.addressof(self._layers),
            final_norm=address(parts["final_norm"]),
            head=ctypes.addressof(head),
            cos=address(parts["cos"]),
            sin=address(parts["sin"]),
        )
