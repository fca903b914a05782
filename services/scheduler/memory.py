"""The cell's KV memory: its blocks and the prefixes in them. Every change of a block's state goes through here.

It knows no choices: what each of them holds is tables.py's, what it keeps between two workers keeping.py's.
"""

from libs.contracts.kv_layout import blocks_for
from services.scheduler.block_pool import BlockPool, Named
from services.scheduler.prefix import Hit, Node, PrefixTree


class Memory:
    def __init__(self, total_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.pool = BlockPool(total_blocks)
        self.tree = PrefixTree(block_tokens)
        self.index_changes: dict[bytes, bool] = {}  # block hash → stored (True) or evicted; the last change counts

    @property
    def total_tokens(self) -> int:
        return self.pool.total_blocks * self.block_tokens

    @property
    def available_blocks(self) -> int:
        """Free, or free once evicted."""
        return self.pool.free_blocks + len(self.pool.cached)

    def blocks_for(self, tokens: int) -> int:
        return blocks_for(tokens, self.block_tokens)

    def idle_blocks(self, hit: Hit) -> int:
        """How many available blocks sharing this hit would use up."""
        return sum(node.block in self.tree.idle for node in shared(hit))

    def make_room(self, blocks: int) -> bool:
        """Evict until `blocks` are free. False when they are not yet: some may have to wait for a worker first."""
        while self.pool.free_blocks < blocks and self.tree.idle:
            self._evict()
        return self.pool.free_blocks >= blocks

    def share(self, hit: Hit) -> None:
        """One user more of all that was found."""
        for node in shared(hit):
            self.pool.reference(node.block)
            self.tree.wake(node)

    def unshare(self, hit: Hit) -> None:
        """Deepest first, so that the tree evicts leaves before what they stand on."""
        for node in reversed(shared(hit)):
            self.give_back(node.block, {})

    def give_back(self, block: int, named: Named) -> None:
        """One user of a block less; the last leaves it to the cache if its content is known."""
        if not self.pool.dereference(block, named):
            return
        node = self.tree.nodes.get(block)
        if node is None:
            self.pool.discard(block)
        else:
            self.tree.rest(node)
            self.pool.cache(block)

    def stored(self, node: Node) -> None:
        """Its content may be found from now on."""
        if node.index_hash:
            self.index_changes[node.index_hash] = True

    def take_index_changes(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """(stored, evicted) since the last call."""
        changes, self.index_changes = self.index_changes, {}
        stored = tuple(block for block, is_stored in changes.items() if is_stored)
        return stored, tuple(block for block, is_stored in changes.items() if not is_stored)

    def _evict(self) -> None:
        node = self.tree.evict()
        self.pool.discard(node.block)
        if node.index_hash:
            self.index_changes[node.index_hash] = False


def shared(hit: Hit) -> tuple[Node, ...]:
    """All that a hit references, from the root down."""
    return hit.path if hit.tail is None else (*hit.path, hit.tail)
