"""INV, checked on a history alone: nothing here asks a running stack. Pure; each function tells what it found wrong."""

from collections.abc import Iterator

from tests.chaos.history import Answer, History, Operation, Oracle, Quiet

LEAKS = ("Traceback", 'File "/', ".py:")


def check(history: History, oracle: Oracle) -> list[str]:
    """Every violation of INV; [] is a sound run. Each choice of a request is held against it as one of its own."""
    problems = []
    for operation in history.operations:
        for index in range(operation.choices):
            alone = operation.choice(index)
            problems += check_operation(alone, oracle(alone), may_fail=history.may_fail)
    problems += _answered_twice(history)
    problems += check_quiet(history.quiet) if history.quiet else ["the run never came to rest"]
    return problems


def check_operation(operation: Operation, answer: Answer, *, may_fail: bool = False) -> list[str]:
    """One terminal state, each position once, and ids, text, usage and reason of the undisturbed run.

    `may_fail`: the fault was one that this client is allowed to see, such as its own gateway's death; what it was told
    before must still be right.
    """
    found = list(_ending(operation, may_fail=may_fail))
    found += _whole(operation, answer) if operation.outcome == "ok" else _beginning(operation, answer)
    found += [f"a client was shown {leak!r}" for leak in LEAKS if leak in operation.error]
    return [f"operation {operation.number}: {problem}" for problem in found]


def check_quiet(quiet: Quiet) -> list[str]:
    """Nothing leaked, nothing left over, nobody unknown."""
    blocks = {name: quiet.blocks.get(name, 0) for name in ("total", "free", "cached", "held", "freeing")}
    problems = []
    if blocks["free"] + blocks["cached"] + blocks["held"] + blocks["freeing"] != blocks["total"]:
        problems.append(f"blocks do not add up: {blocks}")
    if blocks["held"] or blocks["freeing"]:
        problems.append(f"blocks leaked: {blocks}")
    if quiet.waiting or quiet.running:
        problems.append(f"requests left: {quiet.waiting} waiting, {quiet.running} running")
    problems += [f"{count} messages left in the queue {name}" for name, count in quiet.queued.items() if count]
    problems += [f"a process that nobody owns: {process}" for process in quiet.strangers]
    problems += [f"a file left in shared memory: {name}" for name in quiet.shared_files]
    problems += [f"pool corrupted: {what}" for what in quiet.corruptions]
    problems += [f"a service reports: {what}" for what in quiet.violations]
    spans = (quiet.root_spans or {}).items()
    problems += [f"{count} root spans of request {request_id}" for request_id, count in spans if count != 1]
    return problems


def _ending(operation: Operation, *, may_fail: bool) -> Iterator[str]:
    if operation.endings != 1:
        yield f"it ended {operation.endings} times"
    if operation.outcome != "ok" and not may_fail:
        yield f"{operation.outcome}: {operation.status} {operation.error}"


def _whole(operation: Operation, answer: Answer) -> Iterator[str]:
    if operation.ids != answer.ids:
        yield f"ids: {_first_difference(operation.ids, answer.ids)}"
    if operation.text != answer.text:
        yield f"text {operation.text!r} instead of {answer.text!r}"
    if operation.finish_reason != answer.finish_reason:
        yield f"finish reason {operation.finish_reason!r} instead of {answer.finish_reason!r}"
    usage = operation.usage or {}
    told = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    due = (len(operation.prompt_ids), len(answer.ids))
    if told != due:
        yield f"usage {told} instead of {due}"


def _beginning(operation: Operation, answer: Answer) -> Iterator[str]:
    if operation.ids != answer.ids[: len(operation.ids)]:
        yield f"ids before its failure: {_first_difference(operation.ids, answer.ids)}"
    if not answer.text.startswith(operation.text):
        yield f"text {operation.text!r} is no beginning of {answer.text!r}"


def _first_difference(got: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    pairs = enumerate(zip(got, wanted, strict=False))
    position = next((place for place, (a, b) in pairs if a != b), min(len(got), len(wanted)))
    return f"{len(got)} tokens, {len(wanted)} wanted, different from position {position} on"


def _answered_twice(history: History) -> list[str]:
    seen = [operation.request_id for operation in history.operations if operation.request_id]
    return [f"request {each} was answered twice" for each in sorted(set(seen)) if seen.count(each) > 1]
