"""Where cases are played: three stacks of real services, each started by the first case that needs it.

`main` has a key, and room for everything. `odd` has a strict template, a tokenizer with byte fallback and a pool
smaller than the context. `ops` has no template, no key and two workers, which cases may kill.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from libs.runtime import api_keys
from tests.cases.client import Client
from tests.cases.models import CTX, SMALL_CTX, byte_fallback_model, byte_level_model
from tests.e2e.conftest import Stack

MAIN, ODD, OPS = "main", "odd", "ops"
STAGE_OF: Final = {
    **dict.fromkeys(("B004", "B100", "B102", "B114", "B116", "B118"), ODD),
    **dict.fromkeys(("B099", "B163", "B168", "B170", "B172", "B174"), OPS),
}
ODD_BLOCKS, BLOCK_TOKENS = 48, 16
PROBE = {"prompt": "The quick brown fox", "max_tokens": 8, "temperature": 0}
CALM_WITHIN_S = 5.0
DRAIN_S = 10  # `headrace up` leaves gateways 1.5 s, which a stream of a busy machine may need
ORIGIN = "http://localhost:3000"  # of a page that may ask
LORA = ("LORA_A", "LORA_B", "LORA_A_PATH", "LORA_RANK_TOO_BIG", "LORA_WRONG_HIDDEN_SIZE", "LORA_FOR_OTHER_MODULES")


@dataclass(frozen=True)
class Stage:
    """A running stack, a client with its key, and what the names in a case file stand for here."""

    stack: Stack
    client: Client
    names: Mapping[str, Any]
    tokenizer: Tokenizer
    probe_text: str
    model_dir: Path

    @property
    def origin(self) -> str:
        return self.stack.base_url.removesuffix("/v1")

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=special).ids
        return found

    async def complete(self, body: Mapping[str, Any], path: str = "/v1/completions") -> Any:
        """The reply to a body; the model's name goes into it."""
        return await self.client.send({"method": "POST", "path": path, "body": {"model": self.names["MODEL"], **body}})

    async def calm(self, within_s: float = CALM_WITHIN_S) -> None:
        """Nothing runs, waits or holds a block, and the probe is answered as at the start."""
        until_s = time.monotonic() + within_s
        while any(left := self._left()):
            assert time.monotonic() < until_s, f"running, waiting, blocks held: {left}"
            await asyncio.sleep(0.01)
        assert (await self.client.send({"method": "GET", "path": "/health"})).status == 200
        assert (await self.complete(PROBE)).text == self.probe_text

    def _left(self) -> tuple[int, int, int]:
        status = self.stack.status()
        return status["running"], status["waiting"], status["blocks"]["held"]


class Stages:
    """Starts what is asked for, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, Stage] = {}

    async def get(self, name: str) -> Stage:
        if name not in self._running:
            self._running[name] = await self._open(name)
        return self._running[name]

    async def close(self) -> None:
        for stage in self._running.values():
            await stage.client.close()
            if stage.stack.alive:
                stage.stack.stop()

    async def _open(self, name: str) -> Stage:
        folder = self._folder / name
        folder.mkdir()
        model_dir, key, options = self._options(name, folder)
        stack = Stack(folder / "run", model=model_dir, dtype="float32", role="hybrid", prefill=0, **options)
        origin = stack.base_url.removesuffix("/v1")
        client = Client(origin, key)
        tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        names = _names(name, stack.model, key, tokenizer, folder)
        body = {"method": "POST", "path": "/v1/completions", "body": {"model": stack.model, **PROBE}}
        return Stage(stack, client, names, tokenizer, (await client.send(body)).text, model_dir)

    def _options(self, name: str, folder: Path) -> tuple[Path, str, dict[str, Any]]:
        """(model, key, options of `headrace up`)."""
        if name == ODD:
            return byte_fallback_model(folder / "odd"), "", {"kv_blocks": ODD_BLOCKS}
        if name == OPS:
            settings = [f"gateway.drain_s={DRAIN_S}"]
            return byte_level_model(folder / "bare", has_template=False), "", {"decode": 2, "settings": settings}
        key, _ = api_keys.add(folder / "keys.json", "somebody", scopes=api_keys.SCOPES)
        settings = [f"gateway.keys_path={folder / 'keys.json'}", f"gateway.cors_origins={ORIGIN}"]
        return byte_level_model(folder / "tiny"), key, {"kv_blocks": 4096, "settings": settings}


def _names(stage: str, model: str, key: str, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """What stands for itself nowhere: adapters and paths are named after what they are."""
    vocab = tokenizer.get_vocab()
    blank = [index for piece, index in vocab.items() if piece and not piece.strip("Ġ▁ ")]
    lines = [index for piece, index in vocab.items() if piece and not piece.strip("Ċ\n")]
    return {
        **{name: name.lower() for name in LORA},
        "MODEL": model,
        "KEY": key,
        "CTX": CTX if stage != ODD else SMALL_CTX,
        "KVTOK": ODD_BLOCKS * BLOCK_TOKENS,
        "VOCAB": tokenizer.get_vocab_size(),
        "EOS": 2,
        "A": 2,
        "B": 0 if stage != ODD else 3,
        "EOS_LITERAL": "<|im_end|>" if stage != ODD else "</s>",
        "PADDED_ID": tokenizer.get_vocab_size() + 1,
        "SPACE_IDS": blank,
        "NEWLINE_IDS": lines,
        "IDS": lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        "DIR_EMPTY": str(folder / "empty"),
        "DIR_CONFIG_ONLY": str(folder / "config-only"),
        "SYMLINK_TO_OUTSIDE": str(folder / "link"),
    }
