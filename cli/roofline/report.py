"""All figures of one model on one device as a plain value, and that value as a table."""

from dataclasses import dataclass
from io import StringIO
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from cli.roofline.device import GIGA, TERA, Device
from cli.roofline.formulas import (
    DecodeCost,
    Precision,
    cost_per_million,
    flash_attention_intensity,
    prompt_tokens_s,
    shared_prompt_bytes,
    standard_attention_intensity,
)
from cli.roofline.shape import Shape
from cli.roofline.splits import MEMORY_SHARE, Load, Split, splits

MIB: Final = 1 << 20
NARROWEST: Final = 110
ACTIVATION_BYTES: Final = 2.0  # attention over a prompt computes in 16 bits


@dataclass(frozen=True, slots=True)
class Report:
    """Intensities and the ridge are FLOP per byte; None is *never* for a batch, and *unknown* for a cost."""

    device: Device
    load: Load
    parameters: int
    weight_bytes: float
    kv_token_bytes: float
    alone_bytes: float  # KV of the common prompt, a copy for each user
    shared_bytes: float
    ridge: float
    standard_intensity: float
    flash_intensity: float
    decode_intensity: float  # of a step with one sequence
    attention_intensity: float  # of a step's attention, at any batch
    short_batch: float  # from which decode is compute-bound while contexts are short
    context_batch: float | None
    splits: list[Split]
    million_prompt_cost: float | None
    million_output_cost: float | None  # on the cheapest split, with all the sequences that it holds

    @property
    def smallest(self) -> Split | None:
        return next((split for split in self.splits if split.fits), None)


def report_on(shape: Shape, precision: Precision, device: Device, load: Load) -> Report:
    cost, choices = DecodeCost.of(shape, precision), splits(shape, precision, device, load)
    alone, shared = shared_prompt_bytes(cost.token_bytes, load.prompt_tokens, load.users)
    short = cost.transition_batch(device.ridge, 0)
    assert short is not None, "without a context there is no KV to read"
    prompt_s = prompt_tokens_s(cost, device, load.prompt_tokens)
    return Report(
        device=device,
        load=load,
        parameters=shape.parameters,
        weight_bytes=shape.parameters * precision.weight_bytes,
        kv_token_bytes=cost.token_bytes,
        alone_bytes=alone,
        shared_bytes=shared,
        ridge=device.ridge,
        standard_intensity=standard_attention_intensity(load.context_tokens, shape.head_dim, ACTIVATION_BYTES),
        flash_intensity=flash_attention_intensity(load.context_tokens, shape.head_dim, ACTIVATION_BYTES),
        decode_intensity=cost.intensity(1, load.context_tokens),
        attention_intensity=cost.attention_intensity,
        short_batch=short,
        context_batch=cost.transition_batch(device.ridge, load.context_tokens),
        splits=choices,
        million_prompt_cost=cost_per_million(load.price_per_hour, prompt_s) if load.price_per_hour else None,
        million_output_cost=min((split.million_cost for split in choices if split.million_cost), default=None),
    )


def report_json(report: Report) -> str:
    built: dict[str, Any] = msgspec.to_builtins(report)
    built["smallest"] = msgspec.to_builtins(report.smallest)
    return msgspec.json.format(msgspec.json.encode(built), indent=2).decode() + "\n"


def report_text(report: Report) -> str:
    figures = Table(box=None, pad_edge=False, show_header=False)
    figures.add_column(no_wrap=True)
    figures.add_column(justify="right", no_wrap=True)
    figures.add_column(style="dim")
    for row in (*_memory(report), *_arithmetic(report)):
        figures.add_row(*row)
    out = StringIO()
    console = Console(file=out, width=NARROWEST, highlight=False)
    for part in (figures, "", _splits_table(report), "", _verdict(report)):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _memory(report: Report) -> list[tuple[str, str, str]]:
    load = report.load
    return [
        ("parameters", f"{report.parameters / GIGA:.2f} billion", ""),
        ("weights", _gb(report.weight_bytes), ""),
        ("KV of a token", f"{report.kv_token_bytes / MIB:.4f} MiB", f"{report.kv_token_bytes:,.0f} bytes"),
        (
            f"prompt of {load.prompt_tokens:,} tokens, {load.users:,} users",
            f"{_gb(report.alone_bytes)} → {_gb(report.shared_bytes)}",
            "KV with a copy for each, and shared",
        ),
    ]


def _arithmetic(report: Report) -> list[tuple[str, str, str]]:
    device, tokens = report.device, f"{report.load.context_tokens:,} tokens"
    rates = f"{device.flops_s / TERA:,.4g} TFLOP/s over {device.bytes_s / TERA:,.4g} TB/s"
    below = report.attention_intensity <= report.ridge
    return [
        ("ridge", f"{report.ridge:,.0f} FLOP/byte", rates),
        (f"attention over {tokens}, standard", f"{report.standard_intensity:,.0f} FLOP/byte", "scores through memory"),
        (f"attention over {tokens}, flash", f"{report.flash_intensity:,.0f} FLOP/byte", "scores on the chip"),
        (f"decode at {tokens}, one sequence", f"{report.decode_intensity:.2f} FLOP/byte", ""),
        ("decode compute-bound, short contexts", _batch(report.short_batch), "intensity = ridge"),
        (f"decode compute-bound, {tokens}", _batch(report.context_batch), "KV traffic counted"),
        (
            "  its attention alone",
            "never" if below else "always",
            f"{report.attention_intensity:.3g} FLOP/byte at any batch",
        ),
        ("a million prompt tokens", _cost(report.million_prompt_cost), ""),
        ("a million generated tokens", _cost(report.million_output_cost), "on the cheapest split below, full"),
    ]


def _splits_table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in (
        "devices",
        "tensor",
        "pipeline",
        "weights each",
        "KV budget each",
        "sequences",
        "tokens/s",
        "a million",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for split in report.splits:
        table.add_row(
            str(split.devices),
            str(split.tensor),
            str(split.pipeline),
            _gb(split.weight_bytes),
            _gb(split.kv_budget_bytes) if split.kv_budget_bytes > 0 else "none",
            f"{split.sequences:,}",
            f"{split.tokens_s:,.0f}" if split.fits else "-",
            "-" if split.million_cost is None else f"{split.million_cost:,.4g}",
        )
    return table


def _verdict(report: Report) -> str:
    share = f"{MEMORY_SHARE:.0%} of {_gb(report.device.memory_bytes)} each"
    split = report.smallest
    if split is None:
        return f"no split fits into {share}"
    kinds = [f"tensor {split.tensor}"] * (split.tensor > 1) + [f"pipeline {split.pipeline}"] * (split.pipeline > 1)
    how = f"{split.devices} devices, {' and '.join(kinds)} parallel" if kinds else "one device"
    held = f"{split.sequences:,} sequences of {report.load.context_tokens:,} tokens"
    return f"smallest that fits into {share}: {how}; {held}"


def _gb(count: float) -> str:
    return f"{count / GIGA:,.2f} GB"


def _batch(batch: float | None) -> str:
    return "never" if batch is None else f"from {batch:,.0f} sequences"


def _cost(cost: float | None) -> str:
    return "needs --price" if cost is None else f"{cost:,.4g}"
