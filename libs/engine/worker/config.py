"""Worker settings, the same for both services. Units are in the names."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from libs.runtime.config import ServiceConfig


class WorkerConfig(ServiceConfig):
    model: str  # the name under which the cell serves it
    cell: str = "c0"
    model_dir: Path  # a directory in Hugging Face form, or a .gguf file
    dtype: Literal["float32", "bfloat16", "int8", "int8w"] = "bfloat16"
    kv_dtype: Literal["", "float32", "bfloat16"] = ""  # empty: what goes with `dtype`
    block_tokens: int = 16
    max_model_len: int = Field(default=0, ge=0)  # tokens of the longest sequence; 0: what the model allows
    max_batch_tokens: int = Field(default=1024, ge=1)  # tokens of one step; chunks are cut to it
    pool: str  # "fd:N", an open descriptor of the pool's shared memory, or the path of a file
    host_pool: str = ""  # likewise, of the host tier; empty: there is none
    host_bytes_per_s: float = Field(default=0.0, ge=0)  # at most so fast to and from the tier; 0: no limit
    kernels: str = "auto"  # auto, native, torch, or a level of the native ones
    packed_dir: str = ""  # where this host keeps packed weights; empty: in memory of this process alone
    threads: int = Field(default=0, ge=0)  # of the engine; 0: one per core
    link_token: SecretStr
    host: str = "local"  # name of the host agent that can end this process
    incarnation: str = Field(default="", pattern="^([0-9a-f]{32})?$")  # name of this life; empty: drawn at start
