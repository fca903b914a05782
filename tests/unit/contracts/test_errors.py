"""A typed error crosses the wire and is itself again."""

import pytest

from libs.contracts import errors
from libs.contracts.errors import HeadraceError, InvalidRequest, WireError


@pytest.mark.parametrize("kind", errors.all_kinds(), ids=lambda kind: str(kind.__name__))
def test_an_error_keeps_its_type_message_and_field(kind: type[HeadraceError]) -> None:
    """The receiver can handle it by type, and answer with the field's name."""
    back = WireError.of(kind("too long", param="prompt")).to_exception()

    assert (type(back), back.message, back.param) == (kind, "too long", "prompt")


def test_codes_are_unique() -> None:
    """A code stands for one type only."""
    codes = [kind.code for kind in errors.all_kinds()]

    assert len(codes) == len(set(codes))


def test_an_unknown_code_is_still_an_error() -> None:
    """A newer peer's error is not lost; it is only not handled by type."""
    assert type(WireError("brand_new", "m").to_exception()) is HeadraceError


def test_no_field_to_blame_is_no_field() -> None:
    """An empty name on the wire is None inside."""
    assert WireError.of(InvalidRequest("m")).to_exception().param is None
