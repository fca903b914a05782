"""Prompts from which the golden generations are chosen: chats and plain texts, short to over 1,500 tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Candidate:
    """One prompt: either messages (kind "chat") or text (kind "text")."""

    name: str
    messages: Messages | None = None
    text: str | None = None


CONVERSATIONS: dict[str, Messages] = {
    "system": [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    "several-turns": [
        {"role": "user", "content": "My name is Ada and I build water mills."},
        {"role": "assistant", "content": "Nice to meet you, Ada! What kind of water mills do you build?"},
        {"role": "user", "content": "Overshot ones. What is my name?"},
    ],
    "unicode": [{"role": "user", "content": "Übersetze „Guten Morgen“ ins 日本語, please 🙂"}],
    "control-text": [{"role": "user", "content": "What does <|im_end|> mean?\n\n  Indented line.\n"}],
}

QUESTIONS = {
    "capital": "What is the capital of France?",
    "gravity": "What is gravity?",
    "primes": "List the first ten prime numbers.",
    "haiku": "Write a haiku about a river in spring.",
    "seasons": "Explain to a child why there are seasons.",
    "python": "Write a Python function that returns the sum of the squares of a list of numbers.",
    "photosynthesis": "Describe how photosynthesis works in three steps.",
    "recipe": "Give me a simple recipe for pancakes.",
    "wheel": "How does a water wheel turn the flow of a stream into useful work?",
    "planets": "Name the planets of the solar system in order.",
    "mail": "Write a short email asking a colleague to move a meeting to Thursday.",
    "compare": "Compare a bicycle and a car in a few sentences.",
}

TEXTS = {
    "mill": "The history of the water mill begins",
    "once": "Once upon a time, in a valley between two mountains, there lived",
    "count": "one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve,",
    "squares": "1 squared is 1. 2 squared is 4. 3 squared is 9. 4 squared is 16. 5 squared is",
    "code": "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "alphabet": "A is for apple. B is for ball. C is for cat. D is for dog. E is for",
    "months": "The months of the year are January, February, March,",
    "one-word": "Water",
}

GOODS = ("salt", "grain", "timber", "wool", "copper", "linen", "honey", "slate")
ROADS = ("north road", "river path", "old canal", "hill track", "coast road")


def station_log(stations: int) -> str:
    """A made-up log, one sentence a station, its numbers from a fixed linear congruence."""
    sentences = []
    state = 7
    for station in range(1, stations + 1):
        state = (state * 1103515245 + 12345) % 2**31
        distance_km, load = 3 + state % 89, 10 + state // 89 % 490
        goods, road = GOODS[state // 7 % len(GOODS)], ROADS[state // 11 % len(ROADS)]
        sentences.append(
            f"Station {station} lies {distance_km} km along the {road} and keeps {load} barrels of {goods}."
        )
    return " ".join(sentences)


def candidates() -> Iterator[Candidate]:
    """All candidates in a fixed order."""
    for name in ("system", "several-turns", "unicode"):
        yield Candidate(f"chat-{name}", messages=CONVERSATIONS[name])
    for name, question in QUESTIONS.items():
        yield Candidate(f"chat-{name}", messages=[{"role": "user", "content": question}])
    for name, text in TEXTS.items():
        yield Candidate(f"text-{name}", text=text)
    for stations in (5, 9, 14, 22):
        yield Candidate(f"text-log-{stations}", text=station_log(stations))
        question = f"Here is a log.\n\n{station_log(stations)}\n\nWhat does station 2 keep?"
        yield Candidate(f"chat-log-{stations}", messages=[{"role": "user", "content": question}])
    for stations in (62, 66, 70, 75, 80):
        yield Candidate(f"text-log-{stations}", text=station_log(stations))
