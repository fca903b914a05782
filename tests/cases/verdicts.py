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

PARAMETER = "a parameter"
PENDING: Final = MappingProxyType(  # fail today; one that passes must be taken off
    {
        **dict.fromkeys(("B013", "B022", "B077", "B080", "B154", "B015", "B031", "B037", "B046", "B048"), PARAMETER),
        **dict.fromkeys(("B049", "B051", "B052", "B054", "B056"), PARAMETER),
        **dict.fromkeys(("B058", "B059", "B060", "B061", "B063", "B104", "B118", "B119", "B123", "B127"), PARAMETER),
        **dict.fromkeys(("B147", "B148", "B150", "B195"), PARAMETER),
    }
)
WHOLE: Final = frozenset({"B164", *(name for name, stage in STAGE_OF.items() if stage == OPS)})  # only with --whole
