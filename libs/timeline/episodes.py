"""Leaves that belong together as one: all chunks of a prompt, all steps of a stay, a wait among others' steps. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from libs.contracts import conventions as names
from libs.timeline.leaves import Leaf


class Episode(NamedTuple):
    """`name` is that of its leaves; boundaries between them are inside."""

    name: str
    where: str
    leaves: tuple[Leaf, ...]

    @property
    def start_ns(self) -> int:
        return self.leaves[0].start_ns

    @property
    def end_ns(self) -> int:
        return self.leaves[-1].end_ns

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def steps(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf in self.leaves if leaf.step >= 0)

    def total_ns(self, name: str) -> int:
        """Time in leaves of that name."""
        return sum(leaf.duration_ns for leaf in self.leaves if leaf.name == name)


def episodes_of(leaves: Iterable[Leaf]) -> list[Episode]:
    """In the order of time. A boundary, and a wait for the chunk budget, belong to the work that they interrupt."""
    episodes: list[Episode] = []
    held: list[Leaf] = []  # may belong to what comes next
    for leaf in leaves:
        if leaf.name in (names.BOUNDARY, names.WAIT_CHUNK_BUDGET):
            held.append(leaf)
            continue
        last = episodes[-1] if episodes else None
        if last is not None and (last.name, last.where) == (leaf.name, leaf.where):
            episodes[-1] = last._replace(leaves=(*last.leaves, *held, leaf))
        elif leaf.step >= 0:
            episodes.append(Episode(leaf.name, leaf.where, (*held, leaf)))
        else:
            episodes += [Episode(other.name, other.where, (other,)) for other in held]
            episodes.append(Episode(leaf.name, leaf.where, (leaf,)))
        held = []
    return episodes + [Episode(other.name, other.where, (other,)) for other in held]
