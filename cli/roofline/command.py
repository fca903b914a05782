"""Options of `headrace roofline` into its report."""

from typing import Final

from cli.output import progress
from cli.roofline.device import GIGA, TERA, device_of
from cli.roofline.formulas import VALUE_BYTES, Precision
from cli.roofline.report import report_json, report_on, report_text
from cli.roofline.shape import shape_of
from cli.roofline.splits import Load
from libs.contracts.errors import ConfigError

DEFAULT_CONTEXT_TOKENS: Final = 4096


def show_roofline(
    model: str,
    device: str,
    *,
    tflops: float,
    tb_s: float,
    memory_gb: float,
    dtype: str,
    kv_dtype: str,
    load: Load,
    as_json: bool,
) -> str:
    """A context of 0 is DEFAULT_CONTEXT_TOKENS, or the model's longest where that is less. Raises ConfigError."""
    precision = Precision(_value_bytes("--dtype", dtype), _value_bytes("--kv-dtype", kv_dtype))
    found = device_of(device, flops_s=tflops * TERA, bytes_s=tb_s * TERA, memory_bytes=memory_gb * GIGA)
    with progress() as report:
        shape = shape_of(model, lambda done, total: report("converting the model", done, total))
    context = load.context_tokens or min(DEFAULT_CONTEXT_TOKENS, shape.context_tokens)
    asked = Load(context, load.prompt_tokens, load.users, load.price_per_hour)
    figures = report_on(shape, precision, found, asked)
    return report_json(figures) if as_json else report_text(figures)


def _value_bytes(option: str, dtype: str) -> float:
    if dtype not in VALUE_BYTES:
        raise ConfigError(f"{option} must be one of {', '.join(VALUE_BYTES)}, not {dtype!r}")
    return VALUE_BYTES[dtype]
