"""Settings of the pool holder. Units are in the names; there are no others."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from libs.runtime.config import ServiceConfig


class Config(ServiceConfig):
    path: Path  # of the pool's file, in memory; the kill switches of its workers lie beside it
    model_dir: Path  # the pool's layout is the model's
    cell: str = Field(default="c0", min_length=1)
    host: str = Field(min_length=1)  # this host agent's name, which the workers of this pool are told too
    dtype: Literal["float32", "bfloat16", "int8", "int8w"] = "bfloat16"
    block_tokens: int = 16
    kernels: str = "auto"  # as the workers'
    blocks: int = Field(default=0, ge=0)  # 0: what a quarter of the free memory holds, or all of the folder
