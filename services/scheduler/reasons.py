"""Why a choice is where it is: one code per decision, kept with the choice for traces and status."""

from enum import StrEnum


class Reason(StrEnum):
    BEHIND_OLDER = "behind_older"  # an older request waits, or this one was not looked at yet
    BEHIND_PRIORITY = "behind_priority"  # requests of an earlier class wait
    BEHIND_DEADLINE = "behind_deadline"  # a request with an earlier deadline waits
    BEHIND_SHARE = "behind_share"  # its tenant was served more than another one that waits
    NO_WORKER = "no_worker"  # no worker of the needed role is ready
    MAX_RUNNING = "max_running"
    TENANT_FULL = "tenant_full"  # its tenant has all but what is kept for others
    NO_BLOCKS = "no_blocks"
    PENDING_PREFIX = "pending_prefix"  # another request is computing the same prefix
    PREEMPTED_RECOMPUTE = "preempted_recompute"  # its blocks went to an older one; they are computed again
    PREEMPTED_SWAP = "preempted_swap"  # its blocks went to an older one; what was in them rests in the host tier
    BLOCKS_SOON = "blocks_soon"  # it is out of blocks, and another ends before taking some from anybody would pay
    WORKER_LOST = "worker_lost"  # its worker was lost, or an older term had it: its gateway is being asked
    WORKER_LEAVES = "worker_leaves"  # its worker is told to stop: it goes on elsewhere
    NOT_LISTENED_TO = "not_listened_to"  # its gateway listens to another attempt: a new one goes on
    UNKNOWN_WORKERS = "unknown_workers"  # workers of an older term may still write to the pool
    SUSPECTED = "suspected"  # two workers died while they computed it: it waits for one of its own
    SUSPECTS_FIRST = "suspects_first"  # it gave its worker to a suspect, for a step or two
    ADMITTED = "admitted"
    HANDED_OVER = "handed_over"
    DECODING = "decoding"
    STOPPED = "stopped"  # by a worker's token or the gateway's stop string
    CANCELLED = "cancelled"
    DELIVERED = "delivered"
    GATEWAY_SILENT = "gateway_silent"
    DEADLINE = "deadline"  # it passed
    SHED = "shed"  # it could not be done by its deadline
    FAILED = "failed"


PLACES = frozenset({Reason.BEHIND_OLDER, Reason.BEHIND_PRIORITY, Reason.BEHIND_DEADLINE, Reason.BEHIND_SHARE})
WAITS = PLACES | frozenset(
    {
        Reason.NO_WORKER,
        Reason.MAX_RUNNING,
        Reason.TENANT_FULL,
        Reason.NO_BLOCKS,
        Reason.PENDING_PREFIX,
        Reason.PREEMPTED_RECOMPUTE,
        Reason.PREEMPTED_SWAP,
        Reason.WORKER_LOST,
        Reason.WORKER_LEAVES,
        Reason.NOT_LISTENED_TO,
        Reason.UNKNOWN_WORKERS,
        Reason.SUSPECTED,
        Reason.SUSPECTS_FIRST,
    }
)
