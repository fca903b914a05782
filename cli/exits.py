"""What a failed command leaves: one line and an exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from libs.contracts.errors import ConfigError, HeadraceError

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


@contextmanager
def exit_codes() -> Iterator[None]:
    """A typed error becomes one line on stderr and an exit code, never a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except HeadraceError as error:
        sys.stderr.write(f"headrace: {error.message}\n")
        raise typer.Exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED) from None
    except OSError as error:
        sys.stderr.write(f"headrace: {error}\n")
        raise typer.Exit(EXIT_FAILED) from None
