"""The numbers of a model that decide its memory and its arithmetic, from a config.json or by a well-known name."""

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cli.models import Progress, cache_root, resolve_model
from libs.contracts.errors import ConfigError
from libs.engine.model_config import load_model_config

CONFIG_NAME: Final = "config.json"


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of the Llama family. `heads` are query heads; counts are of one layer where layers have them."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_tokens: int  # the longest sequence it was trained for
    tied_embeddings: bool = False

    @property
    def layer_matrix_values(self) -> int:
        """Weights in the matrices of all layers: Q and output, K and V, gate, up and down."""
        attention = 2 * self.hidden * self.heads * self.head_dim + 2 * self.hidden * self.kv_heads * self.head_dim
        return self.layers * (attention + 3 * self.hidden * self.ffn)

    @property
    def head_values(self) -> int:
        """Weights of the matrix from the last hidden state to the vocabulary."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All of them: matrices, embedding (once where it is the head as well), two norms a layer and the last one."""
        embedding = 0 if self.tied_embeddings else self.head_values
        norms = (2 * self.layers + 1) * self.hidden
        return self.layer_matrix_values + self.head_values + embedding + norms


# From the config.json that each model was published with.
SHAPES: Final = MappingProxyType(
    {
        "smollm2": Shape(30, 576, 9, 3, 64, 1536, 49_152, 8_192, tied_embeddings=True),
        "llama-2-7b": Shape(32, 4096, 32, 32, 128, 11_008, 32_000, 4_096),
        "llama-2-70b": Shape(80, 8192, 64, 8, 128, 28_672, 32_000, 4_096),
        "llama-3-8b": Shape(32, 4096, 32, 8, 128, 14_336, 128_256, 8_192),
        "llama-3-70b": Shape(80, 8192, 64, 8, 128, 28_672, 128_256, 8_192),
        "llama-3.1-8b": Shape(32, 4096, 32, 8, 128, 14_336, 128_256, 131_072),
        "llama-3.1-70b": Shape(80, 8192, 64, 8, 128, 28_672, 128_256, 131_072),
        "llama-3.1-405b": Shape(126, 16_384, 128, 8, 128, 53_248, 128_256, 131_072),
        "mistral-7b": Shape(32, 4096, 32, 8, 128, 14_336, 32_768, 32_768),
        "qwen3-8b": Shape(36, 4096, 32, 8, 128, 12_288, 151_936, 40_960),
        "qwen3-32b": Shape(64, 5120, 64, 8, 128, 25_600, 151_936, 40_960),
    }
)


def shape_of(model: str, progress: Progress) -> Shape:
    """A name of SHAPES, a config.json, or whatever `headrace up --model` takes. Raises ConfigError."""
    known = SHAPES.get(model.lower())
    if known is not None:
        return known
    path = Path(model).expanduser()
    if path.name == CONFIG_NAME and path.is_file():
        return read_shape(path.parent)
    if path.suffix.lower() == ".gguf" and path.is_file():
        return read_shape(path)
    try:
        return read_shape(resolve_model(model, cache_root(), progress))
    except ConfigError as error:
        raise ConfigError(f"{error.message}; without a file: {', '.join(SHAPES)}") from error


def read_shape(model_path: Path) -> Shape:
    """Of a model directory or a .gguf file. Raises ConfigError."""
    config = load_model_config(model_path)
    return Shape(
        layers=config.layers,
        hidden=config.hidden_size,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        ffn=config.ffn_size,
        vocab=config.vocab_size,
        context_tokens=config.max_position_tokens,
        tied_embeddings=config.tied_embeddings,
    )
