"""Which Headrace this is."""

from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """As installed; "unknown" where only the sources are."""
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "unknown"
