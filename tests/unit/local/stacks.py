"""A settled stack for tests that start nothing."""

from pathlib import Path
from typing import Any

from deploy.local.options import UpOptions
from deploy.local.stack import Cell, Credentials, Stack
from libs.contracts.kv_layout import KvLayout


def settled(*, cores: int = 8, kernels: str = "native:avx2", **options: Any) -> Stack:
    """A stack as `settle` would return it."""
    asked = UpOptions(run_dir=Path("/run/h"), model_dir=Path("/models/m"), model="m", **options)
    layout = KvLayout(2, 3, 64, 16, "bfloat16")
    first, *others = (
        Cell(number=number, model=model, layout=layout, blocks=10, pool_fd=7 + 10 * number, max_model_len=512)
        for number, model in enumerate(asked.models)
    )
    return Stack(
        options=asked,
        credentials=Credentials.draw(),
        nats_port=4321,
        index_url="unix:///run/h/valkey.sock",
        gateway_port=8123,
        kernels=kernels,
        cores=cores,
        cell=first,
        other_cells=tuple(others),
    )
