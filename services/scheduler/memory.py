"""The cell's KV memory: blocks and the prefixes in them. Every change of a block's state goes through here."""

from collections.abc import Sequence
from dataclasses import replace

from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import BlockCopy
from services.scheduler.block_pool import BlockPool, Named
from services.scheduler.choice import Choice
from services.scheduler.prefix import Hit, Node, PrefixTree
from services.scheduler.tail import Tail

NEVER = 1 << 62  # the version at which a lost worker stops to use what its orders named: only its end counts


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

    def match(self, choice: Choice) -> Hit:
        """What of its known ids is cached. Without a tail where the copy's source would be a block too many.

        One that kept blocks goes on from those.
        """
        if choice.keeps_blocks:
            return Hit((), None, None)
        hit = self.tree.match(choice.sequence.tenant, choice.ids)
        if hit.tail is not None and len(choice.ids) // self.block_tokens + 2 > self.pool.total_blocks:
            return replace(hit, tail=None)
        return hit

    def idle_blocks(self, hit: Hit) -> int:
        """How many available blocks sharing this hit would use up."""
        return sum(node.block in self.tree.idle for node in _shared(hit))

    def make_room(self, blocks: int) -> bool:
        """Evict until `blocks` are free. False when they are not yet: some may have to wait for a worker first."""
        while self.pool.free_blocks < blocks and self.tree.idle:
            self._evict()
        return self.pool.free_blocks >= blocks

    def reserve(self, choice: Choice, hit: Hit, fresh_blocks: int) -> bool:
        """Give a choice its table: the hit's blocks, then fresh ones. False, and nothing changed, if there is no room.

        Blocks that its known ids will fill become pending nodes, so that nobody computes them a second time.
        """
        for node in _shared(hit):
            self._share(node)
        if not self.make_room(fresh_blocks):
            for node in reversed(_shared(hit)):
                self.give_back(node.block, {})
            return False
        choice.path += hit.path
        choice.table += [node.block for node in hit.path]
        whole = len(choice.table)
        choice.table += self.pool.take(fresh_blocks)
        choice.cursor = whole * self.block_tokens
        tails = choice.tails if hit.tail is None else (Tail(hit.tail.block, self.block_tokens - 1),)
        if tails:
            self._copy(choice, tails, whole)
        if len(choice.path) == whole:  # else what follows is its own alone
            self._announce(choice)
        return True

    def part(self, choice: Choice, incarnation: str, begun_blocks: int) -> list[int]:
        """Part a choice from a lost worker: it keeps what is committed. Returns handles that waited for its prefixes.

        Whole committed blocks stay its table. What is committed beyond them is to be copied: the fill counts of the
        first `begun_blocks` blocks can be believed. Those that the worker may still write are freeing until it is gone.
        """
        choice.named[incarnation] = NEVER
        return self.set_aside(choice, begun_blocks)

    def set_aside(self, choice: Choice, begun_blocks: int = 0) -> list[int]:
        """Have a choice without a worker keep what is committed, and nothing else."""
        kept, choice.tails = self._committed(choice, begun_blocks)
        woken: list[int] = []
        for node in reversed(choice.path[kept:]):
            woken += self.tree.drop(node)
        for block in reversed(choice.table[kept:]):
            self.give_back(block, choice.named)
        del choice.path[kept:], choice.table[kept:]
        choice.cursor = kept * self.block_tokens
        return woken

    def adopt(self, choice: Choice, table: Sequence[int], cursor: int) -> None:
        """Take over the blocks of a sequence that an older term's worker computes; its full ones may be shared."""
        self.pool.claim(table)
        choice.table, choice.cursor = list(table), cursor
        for index in range(cursor // self.block_tokens):
            node = self.tree.child(choice.sequence.tenant, choice.path, self.tree.tokens_of(choice.ids, index))
            if node is None:
                self._extend(choice, index, owner=0)
                self._stored(choice.path[index])
            elif node.block == table[index]:
                choice.path.append(node)
            else:
                return

    def grant(self, choice: Choice, blocks: int) -> list[int]:
        """Append free blocks to a table; callers made room."""
        granted = self.pool.take(blocks)
        choice.table += granted
        return granted

    def commit(self, choice: Choice, cursor: int) -> list[int]:
        """Everything below `cursor` is written: full blocks of known ids may be shared. Returns handles that waited.

        A choice whose block another one committed first keeps its own, and what follows it, to itself.
        """
        before, choice.cursor = choice.cursor, cursor
        full_blocks = min(cursor, len(choice.ids)) // self.block_tokens
        woken: list[int] = []
        for index in range(before // self.block_tokens, full_blocks):
            if index < len(choice.path):
                woken += self._commit(choice.path[index])
            elif index == len(choice.path) and self._extend(choice, index, owner=0):
                self._stored(choice.path[index])
        return woken

    def release(self, choice: Choice) -> list[int]:
        """Take back all of a choice's blocks: nobody computes it any more. Returns handles that waited for it.

        Deepest first, so that the tree evicts leaves before what they stand on.
        """
        woken: list[int] = []
        self.copied(choice)
        for tail in choice.tails:
            self.give_back(tail.block, choice.named)
        choice.tails = ()
        for node in reversed(choice.path):
            if node.owner == choice.handle:
                woken += self.tree.drop(node)
        for block in reversed(choice.table):
            self.give_back(block, choice.named)
        choice.path, choice.table, choice.named, choice.cursor, choice.reach = [], [], {}, 0, 0
        return woken

    def copied(self, choice: Choice) -> None:
        """The copies that a choice began with are done, or never will be: their sources are free of it."""
        for copy in choice.copies:
            self.give_back(copy.source, {})
        choice.copies = ()

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

    def take_index_changes(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """(stored, evicted) since the last call."""
        changes, self.index_changes = self.index_changes, {}
        stored = tuple(block for block, is_stored in changes.items() if is_stored)
        return stored, tuple(block for block, is_stored in changes.items() if not is_stored)

    def _share(self, node: Node) -> None:
        self.pool.reference(node.block)
        self.tree.wake(node)

    def _copy(self, choice: Choice, tails: tuple[Tail, ...], whole: int) -> None:
        """Have the tails copied into the blocks behind the `whole` ones, short of the last known token.

        What a fenced attempt writes nobody may read. It wrote what lies below the last token that it is known to have
        drawn before it was fenced; without one, only what it reported counts. Tokens of a later attempt, or of another
        one that its gateway listened to, tell nothing of it.
        """
        certain = choice.cursor + tails[0].tokens
        choice.reach = len(choice.ids) - 1 if len(choice.ids) > choice.joined_tokens else max(certain, choice.reach)
        copies = []
        for tail, index in zip(tails, range(whole, whole + len(tails)), strict=True):
            tokens = min(self.block_tokens, choice.reach - index * self.block_tokens)
            if tokens > 0:
                copies.append(BlockCopy(tail.block, choice.table[index], tokens))
            else:
                self.give_back(tail.block, choice.named)
        choice.copies, choice.tails, choice.cursor = tuple(copies), (), certain
        choice.reach = min(choice.reach, (whole + len(copies)) * self.block_tokens)

    def _committed(self, choice: Choice, begun_blocks: int) -> tuple[int, tuple[Tail, ...]]:
        """How many blocks of a table are committed, and the tails behind them, referenced for the choice.

        Copies that were not reported may not have been made: their sources still have the tails.
        """
        if choice.copies:
            kept, sources = choice.table.index(choice.copies[0].target), [copy.source for copy in choice.copies]
            choice.copies = ()
            choice.disown()
        else:
            choice.reach = choice.cursor
            kept = choice.cursor // self.block_tokens
            sources = choice.table[kept : max(begun_blocks, self.blocks_for(choice.cursor))]
            for block in sources:
                self.pool.reference(block)
        tokens = choice.cursor - kept * self.block_tokens
        return kept, tuple(Tail(block, 0 if index else tokens) for index, block in enumerate(sources))

    def _announce(self, choice: Choice) -> None:
        """Blocks that its known ids will fill become pending nodes."""
        for index in range(len(choice.path), len(choice.ids) // self.block_tokens):
            if not self._extend(choice, index, owner=choice.handle):
                return

    def _extend(self, choice: Choice, index: int, *, owner: int) -> bool:
        tokens = self.tree.tokens_of(choice.ids, index)
        hashes = choice.sequence.block_hashes
        index_hash = hashes[index] if index < len(hashes) else b""
        return self.tree.extend(
            choice.sequence.tenant, choice.path, tokens, choice.table[index], owner=owner, index_hash=index_hash
        )

    def _commit(self, node: Node) -> list[int]:
        if not node.owner:
            return []
        self._stored(node)
        return self.tree.commit(node)

    def _stored(self, node: Node) -> None:
        if node.index_hash:
            self.index_changes[node.index_hash] = True

    def _evict(self) -> None:
        node = self.tree.evict()
        self.pool.discard(node.block)
        if node.index_hash:
            self.index_changes[node.index_hash] = False


def _shared(hit: Hit) -> tuple[Node, ...]:
    """From the root down."""
    return hit.path if hit.tail is None else (*hit.path, hit.tail)
