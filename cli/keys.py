"""`headrace keys`: who may ask the gateway, each key for its tenant."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from cli.exits import exit_codes
from libs.contracts.tenancy import FIRST_PRIORITY, LAST_PRIORITY
from libs.runtime import api_keys

keys = typer.Typer(name="keys", no_args_is_help=True, help="Make, list and take back API keys, each of a tenant.")

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The gateway's keys_path. [default: ~/.config/headrace/keys.json]",
        show_default=False,
    ),
]


@keys.command()
def add(
    tenant: Annotated[str, typer.Argument(help="Whose requests come with it.")],
    priority: Annotated[
        int,
        typer.Option(min=FIRST_PRIORITY, max=LAST_PRIORITY, help="The lowest, so the earliest, that they may ask for."),
    ] = 0,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="What they may do: inference, metrics. May be repeated. [default: inference]"),
    ] = None,
    requests_per_minute: Annotated[int, typer.Option(min=0, help="At most so many; 0 is no limit.")] = 0,
    tokens_per_minute: Annotated[
        int, typer.Option(min=0, help="Of prompts and answers together, at most so many; 0 is no limit.")
    ] = 0,
    file: FileOption = None,
) -> None:
    """Print a new key, which is shown this once. A running gateway takes it within a second."""
    with exit_codes():
        path = _path(file)
        key, entry = api_keys.add(
            path,
            tenant,
            first_priority=priority,
            scopes=tuple(scope or ["inference"]),
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
        sys.stdout.write(key + "\n")
        sys.stderr.write(f"{entry.id} of {entry.tenant}, in {path}; the gateway needs gateway.keys_path={path}\n")


@keys.command("list")
def listed(file: FileOption = None) -> None:
    """Show the keys' names; the keys themselves are not kept."""
    with exit_codes():
        for key in api_keys.read(_path(file)).keys:
            made = time.strftime("%Y-%m-%d", time.gmtime(key.created_unix_s))
            what = f"priority {key.first_priority} and later  {'+'.join(key.scopes)}  {_limits(key)}"
            sys.stdout.write(f"{key.id}  {made}  {what}  {key.tenant}\n")


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")], file: FileOption = None
) -> None:
    """Take a key back. A running gateway refuses it within a second."""
    with exit_codes():
        gone = api_keys.revoke(_path(file), key_id)
        sys.stdout.write(f"revoked {gone.id} of {gone.tenant}\n")


def _limits(key: api_keys.ApiKey) -> str:
    limits = ((key.requests_per_minute, "requests"), (key.tokens_per_minute, "tokens"))
    return ", ".join(f"{limit} {unit} a minute" for limit, unit in limits if limit) or "no limit"


def _path(file: Path | None) -> Path:
    return (file or Path.home() / ".config" / "headrace" / "keys.json").expanduser().absolute()
