"""A worker's steps as records: runs of steps that are alike, written a few times a second. Nothing per token."""

from libs.contracts.messages import Resident, StepResult
from libs.contracts.trace_records import Steps, Waited
from libs.engine.worker.step_values import StepReport
from libs.runtime.ring import Ring

LONGEST_NS = 250_000_000  # a run is written after so long: a process that is killed loses no more


class StepRecords:
    """Mutable; owned by Residences. A step that only reports is one without rows."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._run: Steps | None = None
        self._names: dict[int, str] = {}  # handle → request
        self._residents: tuple[Resident, ...] = ()  # of the run, whose rows advance by one token; empty: not to go on

    def joined(self, resident: Resident) -> None:
        self._names[resident.sequence] = resident.request_id

    def left(self, sequence: int) -> None:
        """It ended or was taken away; what is to be told of it was told."""
        self.close()
        self._names.pop(sequence, None)

    def note(self, report: StepReport, tokens: tuple[int, ...]) -> None:
        """`tokens` are those that each row committed."""
        result = report.result
        for wait in result.waits:
            if wait.waited_ns:
                end_ns = result.started_ns  # a wait ends where its row's step begins
                request_id = self._names.get(wait.sequence, "")
                self._ring.put(Waited(request_id, wait.reason, end_ns - wait.waited_ns, end_ns))
        run = self._run
        if run is not None and report.residents == self._residents and _goes_on(run, result):
            run.times_ns.append(result.started_ns)
            run.times_ns.append(result.ended_ns)
        else:
            self.close()
            request_ids = tuple(resident.request_id for resident in report.residents)
            sampled = tuple(len(row.ids) for row in result.rows)
            times_ns = [result.started_ns, result.ended_ns]
            self._run = Steps(result.step_number, request_ids, tokens, sampled, times_ns)
            self._residents = report.residents if _is_plain(result) else ()

    def close(self) -> None:
        """Write the run as far as it is: what follows differs from it, or is not known to follow soon."""
        if self._run is not None:
            self._ring.put(self._run)
            self._run, self._residents = None, ()


def _is_plain(result: StepResult) -> bool:
    return result.batch_tokens == len(result.rows) and all(row.ids for row in result.rows)


def _goes_on(run: Steps, result: StepResult) -> bool:
    times_ns = run.times_ns
    follows = result.step_number == run.first + len(times_ns) // 2
    return follows and _is_plain(result) and result.ended_ns - times_ns[0] < LONGEST_NS
