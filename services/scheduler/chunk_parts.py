"""How the prompt tokens of one chunk are parted among the prompts that want them.

In the order of the queue: suspects, earlier classes, earlier deadlines. Tenants of one class without deadlines get even
parts, and what one does not need goes to the others: each was charged for its prompts when they were admitted, so its
counter does not tell whose turn it is now.
"""

from collections.abc import Collection
from itertools import groupby
from math import inf

from services.scheduler.choice import Choice
from services.scheduler.fair_queue import LEAD_TOKENS
from services.scheduler.order import rank
from services.scheduler.share import Share

Level = tuple[bool, int, float]


def parts(choices: Collection[Choice], budget: int) -> dict[Choice, int]:
    """Tokens of each that gets some, in the order of their turns; together no more than `budget`."""
    least = min((choice.share.served for choice in choices), default=0)

    def level(choice: Choice) -> Level:
        """A deadline counts unless its tenant is too far ahead of the others."""
        is_usual, priority, _ = rank(choice)
        return is_usual, priority, choice.due_s if choice.share.served - least <= LEAD_TOKENS else inf

    given: dict[Choice, int] = {}
    for _, equals in groupby(sorted(choices, key=lambda choice: (level(choice), choice.handle)), key=level):
        tenants: dict[Share, list[Choice]] = {}
        for choice in equals:
            tenants.setdefault(choice.share, []).append(choice)
        budget -= _part(tenants, budget, given)
    return given


def _part(tenants: dict[Share, list[Choice]], budget: int, given: dict[Choice, int]) -> int:
    """Who wants least first, so that what it leaves is the others'. Returns how many tokens were given."""
    left = budget
    wants = {share: sum(choice.unplanned for choice in own) for share, own in tenants.items()}
    for index, share in enumerate(sorted(tenants, key=lambda share: wants[share])):
        part = -(-left // (len(tenants) - index))
        for choice in tenants[share]:
            tokens = min(choice.unplanned, part)
            if tokens:
                given[choice] = tokens
                part, left = part - tokens, left - tokens
    return budget - left
