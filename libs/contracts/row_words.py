"""Words of the wire about a row: how the computing of an answer ends, "" as long as it goes on, and why it waits."""

from typing import Final

STOP: Final = "stop"  # the last id is the token that ended it
LENGTH: Final = "length"
ERROR: Final = "error"  # logits that are not finite
DEAD_END: Final = "dead_end"  # no token was allowed

OUT_OF_GRANT: Final = "out_of_grant"  # of blocks
FILL_BEHIND: Final = "fill_behind"  # the blocks before it are not filled yet
GRAMMAR_BEHIND: Final = "grammar_behind"  # its grammar is being compiled
