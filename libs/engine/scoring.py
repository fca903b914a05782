"""How likely the ids of a prompt were: the head over all tokens of a row, a few at a time.

Axes: M tokens, K hidden, V vocabulary, J ids of interest.
"""

from collections.abc import Callable
from typing import Final

import torch

from kernels.log_softmax import log_softmax
from libs.contracts.messages import PromptScores
from libs.engine.rows import StepRow

TOKENS_TOGETHER: Final = 32  # whose logits are in memory at once


def score_row(head: Callable[[torch.Tensor], torch.Tensor], x_MK: torch.Tensor, row: StepRow) -> PromptScores | None:
    """Of the ids that follow a row's first tokens, by their hidden states; None when logits are not finite.

    Args:
        head: from hidden states [M, K] to logits [M, V], float32 both.
        x_MK: of all tokens of the row.
    """
    scores = PromptScores(row.base + 1, (), (), (), ())
    for first in range(0, len(row.scored_ids), TOKENS_TOGETHER):
        ids_M1 = torch.tensor(row.scored_ids[first : first + TOKENS_TOGETHER])[:, None]
        logits_MV = head(x_MK[first : first + len(ids_M1)])
        if not logits_MV.isfinite().all():
            return None
        ranks_M = 1 + (logits_MV > logits_MV.gather(1, ids_M1)).sum(dim=1)
        tops_MJ = torch.sort(logits_MV, dim=1, descending=True, stable=True).indices[:, : row.score_tops]
        logprobs_MJ = log_softmax(logits_MV, torch.cat((ids_M1, tops_MJ), dim=1))
        scores = PromptScores(
            scores.first,
            (*scores.logprobs, *logprobs_MJ[:, 0].tolist()),
            (*scores.ranks, *ranks_M.tolist()),
            (*scores.top_ids, *tops_MJ.flatten().tolist()),
            (*scores.top_logprobs, *logprobs_MJ[:, 1:].flatten().tolist()),
        )
    return scores
