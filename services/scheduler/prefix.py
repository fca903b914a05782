"""The prefix tree: which blocks hold which tokens, per tenant.

A node is one full block; its children are the blocks that may follow, by their tokens. A node is *pending* from the
admission of the choice that computes it (its owner) until a step has committed its last token; nobody else may read it
before. A table holds a path from a root, so a referenced node's ancestors are referenced too. Hence, in the order in
which nodes became unreferenced (deepest first when together), the first is a leaf, and the least recently used one.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

Tokens = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """One block of tokens. A root has no block (−1) and no parent."""

    tenant: str
    tokens: Tokens
    block: int
    parent: "Node | None"
    owner: int = 0  # handle of the choice that computes it; 0 once committed
    index_hash: bytes = b""  # what the Redis index knows it by; empty for generated blocks
    children: dict[Tokens, "Node"] = field(default_factory=dict)
    waiters: list[int] = field(default_factory=list)  # handles parked until this node is committed or gone


@dataclass(frozen=True, slots=True)
class Hit:
    """What of a prompt is there: whole blocks to share; of `tail`, all tokens but the last are to be copied.

    `pending` is the deepest node of the prompt that another choice still computes; then the rest is of no use yet.
    """

    path: tuple[Node, ...]
    tail: Node | None
    pending: Node | None


class PrefixTree:
    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.nodes: dict[int, Node] = {}  # by block
        self.idle: OrderedDict[int, Node] = OrderedDict()  # unreferenced, least recently used first
        self._roots: dict[str, Node] = {}

    def match(self, tenant: str, ids: Sequence[int]) -> Hit:
        """The longest committed prefix of `ids`, short of its last token: that one is computed, to sample after it."""
        node, path = self._roots.get(tenant), list[Node]()
        whole_blocks = len(ids) // self.block_tokens
        while node is not None and len(path) < whole_blocks:
            child = node.children.get(self.tokens_of(ids, len(path)))
            if child is None:
                break
            path.append(child)
            node = child
        if path and path[-1].owner:
            return Hit((), None, path[-1])
        ends_with_block = bool(path) and len(path) * self.block_tokens == len(ids)
        tail = path.pop() if ends_with_block else None
        return Hit(tuple(path), tail, None)

    def child(self, tenant: str, path: list[Node], tokens: Tokens) -> Node | None:
        """The node below `path` with these tokens."""
        parent = path[-1] if path else self._roots.get(tenant)
        return None if parent is None else parent.children.get(tokens)

    def extend(
        self, tenant: str, path: list[Node], tokens: Tokens, block: int, *, owner: int, index_hash: bytes
    ) -> bool:
        """Add a node below `path` and append it there. False when other blocks hold these tokens already."""
        parent = path[-1] if path else self._roots.setdefault(tenant, Node(tenant, (), -1, None))
        if tokens in parent.children:
            return False
        node = Node(tenant, tokens, block, parent, owner, index_hash)
        parent.children[tokens] = self.nodes[block] = node
        path.append(node)
        return True

    def tokens_of(self, ids: Sequence[int], index: int) -> Tokens:
        """The tokens of block `index` of a sequence."""
        return tuple(ids[index * self.block_tokens : (index + 1) * self.block_tokens])

    def commit(self, node: Node) -> list[int]:
        """The node may be read from now on. Returns the handles that waited for it."""
        node.owner = 0
        return _take_waiters(node)

    def drop(self, node: Node) -> list[int]:
        """Remove a node without children. Returns the handles that waited for it."""
        assert not node.children and node.parent is not None
        del node.parent.children[node.tokens]
        if node.parent.block < 0 and not node.parent.children:
            del self._roots[node.tenant]
        del self.nodes[node.block]
        self.idle.pop(node.block, None)
        return _take_waiters(node)

    def rest(self, node: Node) -> None:
        """Its block is unreferenced: most recently used of those."""
        self.idle[node.block] = node

    def wake(self, node: Node) -> None:
        """Its block is referenced again."""
        self.idle.pop(node.block, None)

    def evict(self) -> Node:
        """Drop and return the least recently used unreferenced node; there must be one."""
        node = self.idle[next(iter(self.idle))]
        self.drop(node)
        return node


def _take_waiters(node: Node) -> list[int]:
    waiters, node.waiters = node.waiters, []
    return waiters
