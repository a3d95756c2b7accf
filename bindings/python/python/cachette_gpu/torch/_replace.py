"""Replaces functions of PyTorch that a pluggable allocator does not support, and records histories for both.

``torch.cuda.memory`` and ``torch.accelerator.memory`` look these up in ``torch._C`` at every call, so it suffices to
replace them there. Only functions that this PyTorch has are replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import _native
from . import _settings

_plugin = _native.plugin


def _memory_stats(device: int) -> dict[str, Any]:
    """The statistics of a device, nested."""
    return _plugin.memory_stats(device)


def _reset_peaks(device: int) -> None:
    """Resets every peak to the current value."""
    _plugin.reset_peaks(device)


def _reset_totals(device: int) -> None:
    """Resets every sum and count to zero."""
    _plugin.reset_totals(device)


def _memory_fraction(device: int) -> float:
    """The memory limit as a fraction."""
    return _plugin.memory_fraction(device)


def _attach_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Registers an out-of-memory observer."""
    _plugin.on_out_of_memory(observer)


def _check_live_allocations(device: int, mempool_id: tuple[int, int], expected_live_allocations: set[int]) -> bool:
    """Whether exactly these addresses are allocated in a pool."""
    return _plugin.pool_check_live_allocations(device, mempool_id, expected_live_allocations)


def _record_history(enabled: str | None, context: str | None, stacks: str = "all", max_entries: int = sys.maxsize,
                    clear_history: bool = False, compile_context: bool = False,
                    global_record_annotations: bool = False, skip_actions: Sequence[str] = (),
                    record_pinned_host_memory: bool = False, record_cuda: bool = True) -> None:
    """Records a history. Only PyTorch sees its regions, its annotations and its pinned memory, so those three arguments
    have no effect. The last two are of PyTorch 2.14.
    """
    if record_cuda:
        _plugin.record_history(enabled, context, stacks, max_entries, clear_history, list(skip_actions))


def _with_regions(record: Callable[..., None]) -> Callable[..., None]:
    """The same if ``record`` makes PyTorch report its regions and annotations to the compiled class."""

    def record_history(enabled: str | None, context: str | None, stacks: str = "all", max_entries: int = sys.maxsize,
                       clear_history: bool = False, compile_context: bool = False,
                       global_record_annotations: bool = False, skip_actions: Sequence[str] = (),
                       *pinned: bool) -> None:
        """Records a history. What ``pinned`` selects is PyTorch's own from 2.14 on."""
        # This comes first, so that errors are raised before PyTorch has changed anything.
        _record_history(enabled, context, stacks, max_entries, clear_history, False, False, skip_actions, *pinned)
        # The history that PyTorch begins here captures no stacks, so this one replaces it again and keeps all events.
        record(enabled, None, "python", max_entries, False, compile_context, global_record_annotations, [], *pinned)
        _record_history(enabled, context, stacks, max_entries, False, False, False, skip_actions, *pinned)

    return record_history


def _record_history_legacy(enabled: bool, record_context: bool = True, max_entries: int = 1,
                           record_context_of_events: bool = False, record_native: bool = False,
                           clear_history: bool = False, compile_context: bool = False,
                           global_record_annotations: bool = False, skip_actions: Sequence[str] = (),
                           record_pinned_host_memory: bool = False, record_cuda: bool = True) -> None:
    """The same, with the older argument names of PyTorch."""
    context = "alloc" if record_context_of_events else "state" if record_context else None
    _record_history("all" if enabled else None, context, "all" if record_native else "python", max_entries,
                    clear_history, False, False, skip_actions, record_pinned_host_memory, record_cuda)


#: The function of ``torch.cuda.memory`` by which PyTorch's serializer of graphs (newer than 2.15) restores segments.
RESTORER = "_restore_expandable_segments"


def _memory_module() -> Any:
    """``torch.cuda.memory`` of the PyTorch that is loaded; ``None`` without one."""
    return getattr(getattr(sys.modules.get("torch"), "cuda", None), "memory", None)


def _restore_segments(segments: Sequence[dict[str, Any]], pool: tuple[int, int], device: int) -> None:
    """Adds elastic segments to a pool, at their addresses."""
    # That module needs the one that imports this one.
    from ._addresses import restore_segments

    restore_segments(segments, pool, device)


def _add_places(segments: Sequence[dict[str, Any]]) -> None:
    """Adds what PyTorch's serializer of graphs reads of an elastic segment. A restore needs only address and size."""
    for segment in segments:
        segment["expandable_segment_base"] = segment["address"]
        segment["expandable_reservation_size"] = segment["total_size"]
        segment["expandable_segment_size"] = 0
        segment["expandable_segment_handle_type"] = None


def _memory_snapshot(wanted: tuple[int, int] | tuple[int, int, bool] | None = None) -> dict[str, Any]:
    """A snapshot of all devices, or of one pool: its id, and whether to include events."""
    first, second, *traces = wanted or (0, 0)
    pool = (first, second) if first or second else None
    snapshot = _plugin.snapshot(None, pool, traces[0] if traces else True)
    if hasattr(_memory_module(), RESTORER):
        _add_places(snapshot["segments"])
    return snapshot


#: The functions that a compiled class supports by itself, and a pluggable allocator does not.
ANSWERS: dict[str, Callable[..., Any]] = {
    "_cuda_memoryStats": _memory_stats,
    "_cuda_resetPeakMemoryStats": _reset_peaks,
    "_cuda_resetAccumulatedMemoryStats": _reset_totals,
    "_cuda_getMemoryFraction": _memory_fraction,
    "_cuda_attach_out_of_memory_observer": _attach_observer,
    "_cuda_checkPoolLiveAllocations": _check_live_allocations,
    "_accelerator_getDeviceStats": _memory_stats,
    "_accelerator_resetPeakStats": _reset_peaks,
    "_accelerator_resetAccumulatedStats": _reset_totals,
}

#: The functions that Cachette always replaces: it records histories itself, with Python stacks.
HISTORIES: dict[str, Callable[..., Any]] = {
    "_cuda_isHistoryEnabled": _plugin.is_history_enabled,
    "_cuda_record_memory_history": _record_history,
    "_cuda_record_memory_history_legacy": _record_history_legacy,
    "_cuda_memorySnapshot": _memory_snapshot,
    "_cuda_allocationTraceback": _plugin.allocation_traceback,
    "_cuda_setMemoryMetadata": _native.set_memory_metadata,
    "_cuda_getMemoryMetadata": _native.get_memory_metadata,
    "_cuda_memoryMetadataSupported": lambda: True,
    "_cuda_annotateMemory": _plugin.annotate_memory,
}


def replace(torch: Any, compiled: bool = False) -> None:
    """Replaces PyTorch's functions, as far as a ``compiled`` class needs that."""
    replacements = {**HISTORIES} if compiled else {**ANSWERS, **HISTORIES}
    if compiled and hasattr(torch._C, "_cuda_record_memory_history"):
        replacements["_cuda_record_memory_history"] = _with_regions(torch._C._cuda_record_memory_history)
    if hasattr(torch._C, _settings.SETTER):
        change = _settings.raise_ours if compiled else _settings.hand_on
        replacements[_settings.SETTER] = change(getattr(torch._C, _settings.SETTER))
    for name, function in replacements.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
    if hasattr(_memory_module(), RESTORER):
        setattr(_memory_module(), RESTORER, _restore_segments)
    _ask(torch._C)


def _ask(native: Any) -> None:
    """Lets histories query PyTorch for frames that only it has: those of TorchScript and of the forward pass."""
    profiler = getattr(native, "_profiler", None)
    functions = (getattr(native, "_current_autograd_node", None), getattr(profiler, "gather_traceback", None),
                 getattr(profiler, "symbolize_tracebacks", None))
    if all(functions):
        _plugin.ask_torch(*functions)
