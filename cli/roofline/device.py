"""What a device can do at best: operations and bytes a second, and its memory. By name, by options, or by probing."""

import os
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from libs.contracts.errors import ConfigError

TERA: Final = 1e12
GIGA: Final = 1e9
THIS_MACHINE: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Device:
    flops_s: float  # operations a second in dense 16-bit matrix products
    bytes_s: float  # read from memory
    memory_bytes: float

    @property
    def ridge(self) -> float:
        """FLOP per byte from which arithmetic and no longer memory decides.

        Source: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009. H100: 989 / 3.35 = 295; A100: 156.
        """
        return self.flops_s / self.bytes_s


# From the makers' data sheets: dense bfloat16 rates without sparsity, decimal units.
DEVICES: Final = MappingProxyType(
    {
        "a100": Device(312 * TERA, 2.0 * TERA, 80 * GIGA),
        "h100": Device(989 * TERA, 3.35 * TERA, 80 * GIGA),
        "h200": Device(989 * TERA, 4.8 * TERA, 141 * GIGA),
        "b200": Device(2250 * TERA, 8.0 * TERA, 180 * GIGA),
        "l4": Device(121 * TERA, 0.3 * TERA, 24 * GIGA),
        "l40s": Device(362 * TERA, 0.864 * TERA, 48 * GIGA),
        "mi300x": Device(1307 * TERA, 5.3 * TERA, 192 * GIGA),
    }
)


def device_of(name: str, *, flops_s: float, bytes_s: float, memory_bytes: float) -> Device:
    """The device called so, with each figure that is not 0 in place of its own; "" takes all three figures.

    Raises ConfigError.
    """
    given = {"flops_s": flops_s, "bytes_s": bytes_s, "memory_bytes": memory_bytes}
    given = {field: value for field, value in given.items() if value}
    if name.lower() in DEVICES:
        return replace(DEVICES[name.lower()], **given)
    if name.lower() == THIS_MACHINE:
        return replace(probed(), **given)
    if name:
        raise ConfigError(f"no device {name!r}; there are {', '.join(DEVICES)}, and {THIS_MACHINE}: this machine")
    if len(given) < len(Device.__slots__):
        raise ConfigError("without a DEVICE, --flops, --bandwidth and --memory must be given")
    return Device(**given)


def probed() -> Device:
    """This machine's processor: measured for a second, with the memory that is free now. Raises ConfigError."""
    from bench.limits import probe
    from deploy.local.capacity import available_memory_bytes

    try:
        machine = probe(len(os.sched_getaffinity(0)))
    except ImportError as error:
        raise ConfigError("probing this machine takes torch; name a device, or give its figures") from error
    return Device(machine.matrix_ops_s, machine.read_bytes_s, available_memory_bytes())
