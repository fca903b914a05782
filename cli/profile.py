"""`headrace profile`: where the time of the workers' steps goes, as a table, JSON, a flame graph or folded lines."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from cli.control import chosen_run_dir, running
from libs.contracts.errors import Unavailable
from libs.contracts.messages import WorkerProfile
from libs.timeline.flame import flame_svg
from libs.timeline.profile import Node, folded, joined, tree

SVG = ".svg"
INDENT = "  "


def show_profile(run_dir: Path | None, duration_s: float, *, as_json: bool, flame_path: Path | None) -> str:
    """Takes as long as it measures. Raises Unavailable when nothing runs or no worker answers."""
    from deploy.local.profile import ask_profiles

    profiles = asyncio.run(ask_profiles(running(chosen_run_dir(run_dir)), duration_s))
    if not profiles:
        raise Unavailable("no worker answered: they are still loading, or stand still")
    roots = [tree_of(profile) for profile in profiles]
    written = ""
    if flame_path is not None:
        whole = joined("workers", roots)
        text = flame_svg(whole, title(profiles)) if flame_path.suffix == SVG else folded(whole)
        flame_path.write_text(text, encoding="utf-8")
        written = f"wrote {flame_path}\n"
    if as_json:
        return msgspec.json.format(msgspec.json.encode([asdict(profile) for profile in profiles])).decode() + "\n"
    tables = [table(profile, root) for profile, root in zip(profiles, roots, strict=True)]
    return "\n".join(tables) + written


def tree_of(profile: WorkerProfile) -> Node:
    return tree(profile.worker, {lap.path: lap.lap_ns for lap in profile.laps})


def title(profiles: Sequence[WorkerProfile]) -> str:
    steps = sum(profile.steps for profile in profiles)
    return f"{steps:,} steps in {max(profile.duration_ns for profile in profiles) / 1e9:.1f} s"


def table(profile: WorkerProfile, root: Node) -> str:
    """One line a part: its share of the time, and how long it takes in a step."""
    duration_s, steps = profile.duration_ns / 1e9, profile.steps
    lines = [f"{profile.worker}: {steps:,} steps of {profile.batch_tokens:,} tokens in {duration_s:.2f} s"]
    for depth, node in _lines(root, 0):
        share = node.total_ns / max(1, root.total_ns)
        each = f"{node.total_ns / steps / 1e6:12.3f} ms a step" if steps else ""
        lines.append(f"{INDENT * (depth + 1) + node.name:24}{share:8.1%}{each}")
    beside, whole = profile.event_loop_cpu_ns / 1e9, profile.process_cpu_ns / 1e9
    lines.append(f"{INDENT}beside them, frames and orders: {beside:.2f} s of CPU; the process: {whole:.2f} s")
    return "\n".join(lines) + "\n"


def _lines(node: Node, depth: int) -> Iterator[tuple[int, Node]]:
    for child in node.by_size():
        yield depth, child
        yield from _lines(child, depth + 1)
