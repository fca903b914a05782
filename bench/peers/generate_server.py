"""Serves `model.generate` as /v1/completions: `python generate_server.py MODEL_DIR PORT`, in the peer's environment.

Requests of one size that wait together become one static batch, and the others wait for its end: that is all the
batching there is without a server. Imports nothing of the project.
"""

import json
import queue
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer

MAX_BATCH = 32


class Waiting:
    """One request: its prompt, and a queue that its texts come through, then None."""

    def __init__(self, prompt_ids: list[int], new_tokens: int) -> None:
        self.prompt_ids = prompt_ids
        self.new_tokens = new_tokens
        self.texts: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    @property
    def size(self) -> tuple[int, int]:
        return len(self.prompt_ids), self.new_tokens


class Spread(BaseStreamer):  # type: ignore[misc]
    """Hands each row of a step's tokens to its request. The first call carries the prompts."""

    def __init__(self, tokenizer: Any, batch: list[Waiting]) -> None:
        self._tokenizer = tokenizer
        self._batch = batch
        self._prompts_seen = False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompts_seen:
            self._prompts_seen = True
            return
        for waiting, token_id in zip(self._batch, value.flatten().tolist(), strict=True):
            waiting.texts.put(self._tokenizer.decode([token_id]))

    def end(self) -> None:
        for waiting in self._batch:
            waiting.texts.put(None)


def batches(arrivals: "queue.SimpleQueue[Waiting]") -> Iterator[list[Waiting]]:
    """The oldest request with all that wait and have its size."""
    held: list[Waiting] = []
    while True:
        if not held:
            held.append(arrivals.get())
        while not arrivals.empty():
            held.append(arrivals.get())
        batch = [waiting for waiting in held if waiting.size == held[0].size][:MAX_BATCH]
        held = [waiting for waiting in held if waiting not in batch]
        yield batch


def compute(model: Any, tokenizer: Any, arrivals: "queue.SimpleQueue[Waiting]") -> None:
    for batch in batches(arrivals):
        ids = torch.tensor([waiting.prompt_ids for waiting in batch])
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=batch[0].new_tokens,
            min_new_tokens=batch[0].new_tokens,
            do_sample=False,
            streamer=Spread(tokenizer, batch),
        )


class Server(ThreadingHTTPServer):
    """Keeps what its handlers share: the requests that wait."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.arrivals: queue.SimpleQueue[Waiting] = queue.SimpleQueue()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        waiting = Waiting(body["prompt"], body["max_tokens"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.server.arrivals.put(waiting)
        given = 0
        while (text := waiting.texts.get()) is not None:
            given += 1
            reason = "length" if given == waiting.new_tokens else None
            self._event({"choices": [{"index": 0, "text": text, "finish_reason": reason}]})
        usage = {"prompt_tokens": len(waiting.prompt_ids), "completion_tokens": given}
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    model_dir, port = sys.argv[1], int(sys.argv[2])
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
    with Server(port) as server:
        threading.Thread(target=compute, args=(model, tokenizer, server.arrivals), daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    main()
