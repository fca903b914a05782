"""A worker's laps as a tree of named time: the same for the table, the flame graph and folded lines. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

PARTS = ";"


@dataclass(slots=True)
class Node:
    """`total_ns` is that of its children, where it has any, and of its own."""

    name: str
    total_ns: int = 0
    children: dict[str, "Node"] = field(default_factory=dict)

    def by_size(self) -> list["Node"]:
        return sorted(self.children.values(), key=lambda node: (-node.total_ns, node.name))

    @property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children.values()), default=0)


def tree(name: str, laps_ns: Mapping[str, int]) -> Node:
    """`laps_ns` by path; a path's parts are parted by semicolons."""
    root = Node(name)
    for path, lap_ns in laps_ns.items():
        node = root
        node.total_ns += lap_ns
        for part in path.split(PARTS):
            node = node.children.setdefault(part, Node(part))
            node.total_ns += lap_ns
    return root


def joined(name: str, roots: Iterable[Node]) -> Node:
    """Trees side by side under one."""
    children = {root.name: root for root in roots}
    return Node(name, sum(root.total_ns for root in children.values()), children)


def folded(root: Node) -> str:
    """One line a leaf, `a;b;c microseconds`: what flamegraph.pl, speedscope and inferno read."""
    return "".join(f"{path} {own_ns // 1000}\n" for path, own_ns in _own(root, ()) if own_ns >= 1000)


def _own(node: Node, above: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    path = (*above, node.name)
    yield PARTS.join(path), node.total_ns - sum(child.total_ns for child in node.children.values())
    for child in node.by_size():
        yield from _own(child, path)
