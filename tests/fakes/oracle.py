"""A plain generator to compare with: one sequence, one process, contiguous KV, no paging, no batching, no segments.

It shares no code with the engine but Philox, which has published answers. Rounding points are those of the class.

Axes: S positions so far, W new tokens, Q query heads, H kv heads, D head dim, V vocabulary.
"""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from kernels.philox import philox4x32
from libs.contracts.messages import SamplingParams

Round = Callable[[torch.Tensor], torch.Tensor]


class Oracle:
    """A Llama model in memory. `dtype` is "float32" or "bfloat16"."""

    def __init__(self, model_dir: Path, dtype: str = "float32") -> None:
        self.config: dict[str, Any] = json.loads((model_dir / "config.json").read_text())
        eos = self.config.get("eos_token_id")
        self.eos_ids = frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])
        self.round: Round = (lambda x: x.bfloat16().float()) if dtype == "bfloat16" else (lambda x: x)
        tensors = load_file(model_dir / "model.safetensors")
        self.weights = {name: self.round(tensor.float()) for name, tensor in tensors.items()}

    def generate(self, prompt_ids: Sequence[int], params: SamplingParams, choice: int = 0) -> list[int]:
        """The generated ids, a stop token included."""
        cache = Cache()
        logits = self.logits(prompt_ids, cache)
        ids: list[int] = []
        stops = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self.eos_ids)
        while True:
            banned = stops if len(ids) < params.min_tokens else frozenset()
            ids.append(draw(logits, params, len(ids), choice, banned))
            if len(ids) == params.max_tokens or ids[-1] in stops:
                return ids
            logits = self.logits(ids[-1:], cache)

    def beam_search(self, prompt_ids: Sequence[int], params: SamplingParams) -> tuple[list[list[int]], float]:
        """The best hypotheses, all of one length, and the least gap between two scores that were put in order.

        No hypothesis may end before max_tokens: nothing is shared, and every step computes all of it again.
        """
        live, gap = [(0.0, list[int]())], float("inf")
        for _ in range(params.max_tokens):
            grown = [
                (score + logprob, ids, token_id)
                for score, ids in live
                for token_id, logprob in self._likeliest([*prompt_ids, *ids], 2 * params.beam_width)
            ]
            best = sorted(grown, key=lambda one: -one[0])[: params.beam_width + 1]
            gap = min([gap, *(first[0] - second[0] for first, second in pairwise(best))])
            live = [(score, [*ids, token_id]) for score, ids, token_id in best[: params.beam_width]]
        return [ids for _, ids in live], gap

    def _likeliest(self, ids: Sequence[int], count: int) -> list[tuple[int, float]]:
        logprobs, token_ids = torch.log_softmax(self.logits(ids, Cache()).double(), 0).topk(count)
        return list(zip(token_ids.tolist(), logprobs.tolist(), strict=True))

    @torch.inference_mode()
    def logits(self, ids: Sequence[int], cache: "Cache") -> torch.Tensor:
        """[V] float32 after the last of the new ids; the cache takes their KV."""
        x_WK = self.weights["model.embed_tokens.weight"][torch.tensor(ids)]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x_WK = x_WK + self._attention(prefix, self._norm(prefix + "input_layernorm", x_WK), cache)
            h_WK = self._norm(prefix + "post_attention_layernorm", x_WK)
            gated = F.silu(self._linear(prefix + "mlp.gate_proj", h_WK)) * self._linear(prefix + "mlp.up_proj", h_WK)
            x_WK = x_WK + self._linear(prefix + "mlp.down_proj", gated)
        head = "lm_head" if "lm_head.weight" in self.weights else "model.embed_tokens"
        return self._linear(head, self._norm("model.norm", x_WK[-1:]))[0]

    def _attention(self, prefix: str, h_WK: torch.Tensor, cache: "Cache") -> torch.Tensor:
        W, D = len(h_WK), self.config["head_dim"]
        q_WQD, k_WHD, v_WHD = (
            self._linear(f"{prefix}self_attn.{name}_proj", h_WK).view(W, -1, D) for name in ("q", "k", "v")
        )
        start = cache.length(prefix)
        positions = torch.arange(start, start + W)
        k_SHD, v_SHD = cache.append(prefix, self.round(self._rotate(k_WHD, positions)), self.round(v_WHD))
        group = q_WQD.shape[1] // k_SHD.shape[1]
        k_SQD, v_SQD = k_SHD.repeat_interleave(group, dim=1), v_SHD.repeat_interleave(group, dim=1)
        scores_QWS = torch.einsum("wqd,sqd->qws", self.round(self._rotate(q_WQD, positions)), k_SQD) * D**-0.5
        scores_QWS = scores_QWS.masked_fill(torch.arange(start + W) > positions[:, None], -torch.inf)
        p_QWS = (scores_QWS - scores_QWS.amax(-1, keepdim=True)).exp()
        mixed_WQD = torch.einsum("qws,sqd->wqd", self.round(p_QWS), v_SQD) / p_QWS.sum(-1).t()[..., None]
        return self._linear(f"{prefix}self_attn.o_proj", mixed_WQD.reshape(W, -1))

    def _rotate(self, x_WHD: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        D = x_WHD.shape[-1]
        frequencies = torch.pow(float(self.config["rope_theta"]), -torch.arange(0, D, 2).double() / D)
        angles = positions.double()[:, None] * frequencies
        cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
        low, high = x_WHD.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        mean, eps = x.square().mean(dim=-1, keepdim=True), float(self.config["rms_norm_eps"])
        return x * (mean + eps).rsqrt() * self.weights[f"{name}.weight"]

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.round(x), self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))


class Cache:
    """Keys and values of one sequence, per layer."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def length(self, layer: str) -> int:
        return len(self._kept[layer][0]) if layer in self._kept else 0

    def append(self, layer: str, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if layer in self._kept:
            k, v = torch.cat([self._kept[layer][0], k]), torch.cat([self._kept[layer][1], v])
        self._kept[layer] = k, v
        return k, v


def draw(
    logits_V: torch.Tensor, params: SamplingParams, position: int, choice: int, banned: frozenset[int] = frozenset()
) -> int:
    """The token of the sampling clause, filters applied by rank over the whole vocabulary."""
    logits = logits_V.numpy().copy()
    logits[list(banned)] = -np.inf
    if params.temperature == 0:
        return int(logits.argmax())
    scores = logits / np.float32(params.temperature)
    weights = np.exp(scores - scores.max())
    order = np.lexsort((np.arange(len(scores)), -scores))
    order = order[weights[order] >= np.float32(params.min_p)]
    order = order[: params.top_k or len(order)]
    sums = np.cumsum(weights[order], dtype=np.float32)
    if params.top_p < 1:
        order = order[np.r_[True, sums[:-1] < np.float32(params.top_p) * sums[-1]]]
    perturbed = np.full(len(scores), -np.inf, np.float32)
    perturbed[order] = scores[order] + gumbel(len(scores), params.seed + choice, position)[order]
    return int(perturbed.argmax())


def gumbel(vocabulary: int, key: int, position: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    groups = np.arange(-(-vocabulary // 4), dtype=np.uint64)
    fixed = [np.full_like(groups, word) for word in (position, 0)]
    key %= 1 << 64
    lanes = philox4x32((fixed[0], fixed[1], groups, np.zeros_like(groups)), (key & 0xFFFFFFFF, key >> 32))
    words = np.stack(lanes, axis=1).reshape(-1)[:vocabulary]
    uniform = ((words >> np.uint64(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    noise: np.ndarray[Any, np.dtype[np.float32]] = -np.log(-np.log(uniform))
    return noise
