"""Which process of `pytest -n N` runs which file: most tests wait, and cores that nobody needs compute the others.

The first process computes, at a low priority, what looks at no clock; the others start stacks and wait for them.
What measures time, or has use for every core, comes last, in the only process that is left by then.
"""

from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

COMPUTES: Final = ("tests/unit/", "tests/kernels/", "tests/model/", "tests/chaos/test_worlds.py")
LAST_AND_ALONE: Final = ("tests/e2e/", "tests/integration/test_trace_cost.py")
ALONE: Final = "alone"
COMPUTER: Final = "gw0"
NICENESS: Final = 10


def is_computer(worker: str, workers: int) -> bool:
    """Whether this one of so many processes computes only."""
    return worker == COMPUTER and workers > 1


class SideBySide(LoadScopeScheduling):  # type: ignore[misc]
    """A file is one piece of work, so that the fixtures of a module are made once; all that runs alone is one, too."""

    def schedule(self) -> None:
        """Who comes last is left out when there is less work than processes: let that be the one that only computes."""
        for node in filter(self._is_computer, self.nodes):
            self.assigned_work[node] = self.assigned_work.pop(node)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return ALONE if nodeid.startswith(LAST_AND_ALONE) else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._next_for(node)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)
        elif not self._will_be_last(node):
            node.shutdown()

    def remove_node(self, node: WorkerController) -> str | None:
        """Returns the test that a process crashed on. It is not tried again; what would have followed it is."""
        pieces = self.assigned_work.pop(node)
        left = [(scope, test) for scope, piece in pieces.items() for test, is_done in piece.items() if not is_done]
        for scope, _ in left:
            self.workqueue[scope] = pieces[scope]
        if left:
            scope, crashed = left[0]
            pieces[scope][crashed] = True
        for other in self.nodes if self.workqueue else ():
            self._reschedule(other)
        return left[0][1] if left else None

    def _next_for(self, node: WorkerController) -> str | None:
        computing = [scope for scope in self.workqueue if scope.startswith(COMPUTES)]
        if self._is_computer(node):
            return next(iter(computing), None)
        waiting = [scope for scope in self.workqueue if scope != ALONE and scope not in computing]
        alone = [ALONE] if ALONE in self.workqueue and self.nodes == [node] else []
        return next(iter((*waiting, *computing, *alone)), None)

    def _will_be_last(self, node: WorkerController) -> bool:
        """Whether it stays for what runs alone: one process does, and never that of low priority."""
        others = [other for other in self.nodes if other is not node and not self._is_computer(other)]
        stays = not self._is_computer(node) and all(other.shutting_down for other in others)
        return stays and ALONE in self.workqueue

    def _is_computer(self, node: WorkerController) -> bool:
        return is_computer(node.gateway.id, self.numnodes)
