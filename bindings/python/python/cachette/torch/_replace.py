"""Answers for the functions of PyTorch that a pluggable allocator leaves without one.

``torch.cuda.memory`` and ``torch.accelerator.memory`` look these up in ``torch._C`` at every call, so it is enough to
put others there. Only those are replaced that this PyTorch has; everything else of PyTorch stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _native

_plugin = _native.plugin


def _memory_stats(device: int) -> dict[str, Any]:
    """The statistics of a device, nested."""
    return _plugin.memory_stats(device)


def _reset_peaks(device: int) -> None:
    """Makes every peak the present value."""
    _plugin.reset_peaks(device)


def _reset_totals(device: int) -> None:
    """Makes every sum and count zero."""
    _plugin.reset_totals(device)


def _memory_fraction(device: int) -> float:
    """The share of the device that may be held."""
    return _plugin.memory_fraction(device)


def _attach_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Calls ``observer`` before a request ends in out-of-memory."""
    _plugin.on_out_of_memory(observer)


def _holds_exactly(device: int, mempool_id: tuple[int, int], expected_live_allocations: set[int]) -> bool:
    """Whether just these addresses are allocated in a pool."""
    return _plugin.pool_holds_exactly(device, mempool_id, expected_live_allocations)


def _is_history_enabled() -> bool:
    """No history is recorded."""
    return False


#: What is replaced, and by what.
REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "_cuda_memoryStats": _memory_stats,
    "_cuda_resetPeakMemoryStats": _reset_peaks,
    "_cuda_resetAccumulatedMemoryStats": _reset_totals,
    "_cuda_getMemoryFraction": _memory_fraction,
    "_cuda_attach_out_of_memory_observer": _attach_observer,
    "_cuda_checkPoolLiveAllocations": _holds_exactly,
    "_cuda_isHistoryEnabled": _is_history_enabled,
    "_accelerator_getDeviceStats": _memory_stats,
    "_accelerator_resetPeakStats": _reset_peaks,
    "_accelerator_resetAccumulatedStats": _reset_totals,
}


def replace(torch: Any) -> None:
    """Puts our functions in the place of PyTorch's."""
    for name, function in REPLACEMENTS.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
