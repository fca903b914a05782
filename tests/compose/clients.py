"""Clients of a stack through its proxy: the official library over HTTP, grpcio, and a load of both kinds of answers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import openai

from libs.contracts import codec
from libs.contracts.messages import ChatMessage, GenerateChunk, GenerateRequest

METHOD = "/headrace.v1.Inference/GenerateStream"
DEADLINE_S = 120.0
CAPITAL = "What is the capital of France?"
STORY = "Tell me a long story about a mill, its wheel and the river that drives it."


@dataclass(frozen=True, slots=True)
class Doors:
    """Where the proxy listens, and what it wants to see."""

    port: int
    grpc_port: int
    key: str
    model: str

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key=self.key, max_retries=0, timeout=DEADLINE_S
        )

    def ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/ready", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def chat(self, prompt: str, tokens: int, seen: Callable[[int], None] = lambda count: None) -> tuple[str, list[int]]:
        """Text and ids of a greedy streamed answer; `seen` hears how many chunks have come."""
        text, ids = "", list[int]()
        with self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=tokens,
            temperature=0,
            stream=True,
            extra_body={"return_token_ids": True, "ignore_eos": tokens > 64},
        ) as stream:
            for count, chunk in enumerate(stream):
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    ids += getattr(choice, "token_ids", None) or []
                seen(count)
        return text, ids

    def chat_grpc(self, prompt: str, tokens: int) -> tuple[str, list[int]]:
        """The same over gRPC."""
        request = GenerateRequest(
            self.model, messages=(ChatMessage("user", prompt),), max_tokens=tokens, temperature=0.0
        )
        text, ids = "", list[int]()
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            call = channel.unary_stream(METHOD, codec.encode, lambda payload: codec.decode(GenerateChunk, payload))
            metadata = (("authorization", f"Bearer {self.key}"),)
            for chunk in call(request, metadata=metadata, timeout=DEADLINE_S):
                text += chunk.delta.text
                ids += chunk.delta.token_ids
        return text, ids


@dataclass
class Load:
    """What became of the requests of a load."""

    done: int = 0
    longest_s: float = 0.0
    failures: list[str] = field(default_factory=list)


@contextmanager
def load(doors: Doors, clients: int) -> Iterator[Load]:
    """So many clients that ask one thing after another until the block ends; their last answers are waited for."""
    result, stop, lock = Load(), threading.Event(), threading.Lock()

    def ask(number: int) -> None:
        while not stop.is_set():
            begun_s = time.monotonic()
            failure = ""
            try:
                doors.chat(f"{CAPITAL} I am number {number}.", 16)
            except (openai.OpenAIError, httpx.HTTPError) as error:
                failure = repr(error)
            with lock:
                result.done += 1
                result.longest_s = max(result.longest_s, time.monotonic() - begun_s)
                if failure:
                    result.failures.append(failure)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield result
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def in_thread(job: Callable[[], Any]) -> Callable[[], Any]:
    """Start `job`; the returned function waits for what it returns, or raises what it raised."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = job()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run)
    thread.start()

    def join() -> Any:
        thread.join()
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]

    return join
