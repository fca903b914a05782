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

BOUND, PARAMETER = "structured output", "a parameter"
PENDING: Final = MappingProxyType(  # fail today; one that passes must be taken off
    {
        **dict.fromkeys(("B001", "B002", "B004", "B007", "B008", "B009", "B013", "B022", "B025"), BOUND),
        **dict.fromkeys(
            ("B067", "B069", "B070", "B074", "B077", "B079", "B080", "B122", "B130", "B132", "B154"), BOUND
        ),
        **dict.fromkeys(("B015", "B031", "B037", "B046", "B048", "B049", "B051", "B052", "B054", "B056"), PARAMETER),
        **dict.fromkeys(("B058", "B059", "B060", "B061", "B063", "B104", "B118", "B119", "B123", "B127"), PARAMETER),
        **dict.fromkeys(("B147", "B148", "B150", "B195"), PARAMETER),
        "B145": "kinds of rotation",
    }
)
WHOLE: Final = frozenset({"B164", *(name for name, stage in STAGE_OF.items() if stage == OPS)})  # only with --whole
