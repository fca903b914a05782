"""Cases that are not what they should be yet: each with its reason, and none longer than it is true."""

from types import MappingProxyType
from typing import Final

from tests.cases.stage import OPS, STAGE_OF

TOOLS, LORA = "calls of tools", "adapters"
LATER: Final = MappingProxyType(  # features of later work: answered by a clean 4xx
    {
        **dict.fromkeys(
            ("B027", "B083", "B085", "B086", "B087", "B089", "B090", "B092", "B093", "B095", "B097"), TOOLS
        ),
        **dict.fromkeys(("B125", "B135", "B136", "B137"), LORA),
    }
)

PENDING: Final = MappingProxyType(dict[str, str]())  # fail today, each with its reason
WHOLE: Final = frozenset({"B164", *(name for name, stage in STAGE_OF.items() if stage == OPS)})  # only with --whole
ALONE: Final = frozenset({"B127", "B176", "B177"})  # count what others would add to, or find what they left
