"""The memory functions of ``torch.cuda``, implemented by Cachette."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .. import _native
from ._device import Device, index_of

_plugin = _native.plugin


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The statistics of a device in dictionaries of dictionaries; empty before Cachette was enabled."""
    if not _plugin.is_started():
        return {}
    return _plugin.memory_stats(index_of(device))


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """The statistics of a device, with keys such as ``"allocated_bytes.all.current"``."""
    return flatten(memory_stats_as_nested_dict(device))


def flatten(nested: dict[str, Any]) -> OrderedDict[str, Any]:
    """Flattens nested dictionaries into one, with dots between the keys, in order."""
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    walk("", nested)
    return OrderedDict(sorted(flat.items()))


def memory_allocated(device: Device = None) -> int:
    """Bytes in use by tensors."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """The peak of bytes in use by tensors, since the start or the last :func:`reset_peak_memory_stats`."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Bytes reserved from the device."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """The peak of bytes held from the device, since the start or the last :func:`reset_peak_memory_stats`."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics of a device as a table; ``abbreviated`` omits the two kinds of segment."""
    if not _plugin.is_started():
        return "Cachette is not enabled.\n"
    number = index_of(device)
    lines = _plugin.memory_summary(number).splitlines()
    if abbreviated:
        lines = [line for line in lines if not line.startswith("  ")] or lines
    return "\n".join([f"Cachette, device {number}", *lines]) + "\n"


def reset_peak_memory_stats(device: Device = None) -> None:
    """Resets every peak to the current value."""
    if _plugin.is_started():
        _plugin.reset_peaks(index_of(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Resets every sum and count to zero; current values and peaks stay."""
    if _plugin.is_started():
        _plugin.reset_totals(index_of(device))


def empty_cache() -> None:
    """Releases unused memory of every device."""
    _plugin.empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """The device's free and total memory, in bytes."""
    return _plugin.memory_info(index_of(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limits Cachette to a fraction of the device's memory; 1 removes the limit."""
    if not isinstance(fraction, float):
        raise TypeError(f"the fraction must be a float, not {type(fraction).__name__}")
    _plugin.set_memory_fraction(fraction, index_of(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The limit as a fraction of the device's memory; 1 without a limit."""
    return _plugin.memory_fraction(index_of(device))


def attach_out_of_memory_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Registers ``observer(device, bytes, device_total, device_free)`` for out-of-memory errors.

    ``bytes`` is the size requested from the device. If there is a memory limit, ``device_total`` is that limit.
    """
    _plugin.on_out_of_memory(observer)
