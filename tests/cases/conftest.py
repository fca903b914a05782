"""The stages of the cases, each started once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cases.stage import Stages


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stages(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stages]:
    """Running stacks, by name."""
    opened = Stages(tmp_path_factory.mktemp("stages"))
    yield opened
    await opened.close()
