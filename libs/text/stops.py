"""Finds stop strings in text that comes piece by piece, and holds back what may yet become one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """The stop string that ended the text, and the position of the token that completed it."""

    stop: str
    position: int


class StopMatcher:
    """Watches one sequence's text for stop strings.

    The match is the one that is complete first, and of those complete at the same character the longest. It depends
    on the text alone, not on how tokens cut it. Each stop string is matched by Knuth, Morris and Pratt's automaton,
    so the work per character is bounded whatever the stop strings are.
    """

    def __init__(self, stops: tuple[str, ...], min_tokens: int = 0, *, include_stop: bool = False) -> None:
        """
        Args:
            stops: none of them empty.
            min_tokens: a stop string is looked for only in text of the tokens at this position and later.
            include_stop: let the text end with the stop string instead of before it.
        """
        assert all(stops), stops
        self.match: StopMatch | None = None
        self._automata = [_Automaton(stop) for stop in stops]
        self._min_tokens = min_tokens
        self._include_stop = include_stop
        self._held = ""

    @property
    def held_chars(self) -> int:
        """How many characters are held back: the longest end of the text that may begin a stop string."""
        return len(self._held)

    def push(self, position: int, delta: str) -> str:
        """Take the text that the token at position completed; return the text that is now certain.

        After a match `match` is set, and this and every later call return nothing that lies behind it.
        """
        if self.match is not None:
            return ""
        if position < self._min_tokens or not self._automata:
            return delta
        text = self._held + delta
        for index, char in enumerate(delta, start=len(self._held)):
            if stop := self._complete(char):
                self.match = StopMatch(stop, position)
                self._held = ""
                end = index + 1
                return text[:end] if self._include_stop else text[: end - len(stop)]
        certain_chars = len(text) - max(automaton.matched for automaton in self._automata)
        self._held = text[certain_chars:]
        return text[:certain_chars]

    def finish(self) -> str:
        """The text still held back, at an end that no stop string made."""
        tail, self._held = self._held, ""
        return tail

    def _complete(self, char: str) -> str:
        """Step all automata by one character; the longest stop string that it completes, or nothing."""
        return max((automaton.stop for automaton in self._automata if automaton.step(char)), key=len, default="")


class _Automaton:
    """How much of one stop string the text so far ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._fallback = [0] * len(stop)  # of the first i + 1 characters, the longest proper prefix that is also an end
        length = 0
        for index in range(1, len(stop)):
            while length and stop[index] != stop[length]:
                length = self._fallback[length - 1]
            length += stop[index] == stop[length]
            self._fallback[index] = length

    def step(self, char: str) -> bool:
        """Whether this character completes the stop string. Not to be called again after that."""
        while self.matched and self.stop[self.matched] != char:
            self.matched = self._fallback[self.matched - 1]
        self.matched += self.stop[self.matched] == char
        return self.matched == len(self.stop)
