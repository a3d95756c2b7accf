"""Histories and snapshots, with the names and meanings of ``torch.cuda.memory``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from .. import _native
from ._device import Device, index_of

_plugin = _native.plugin

#: The default number of events that are kept; 96 bytes each are allocated at once.
USUAL_ENTRIES = 100_000


def record_memory_history(enabled: str | None = "all", context: str | None = "all", stacks: str = "all",
                          max_entries: int = USUAL_ENTRIES, clear_history: bool = False,
                          skip_actions: Sequence[str] = ()) -> None:
    """Starts to record a history on every device; ``None`` stops it and deletes the events.

    ``enabled`` is ``"all"``, or ``"state"`` for live memory only. ``context`` selects what has a stack: nothing
    (``None``), live memory (``"state"``), allocations (``"alloc"``), or also frees (``"all"``). ``stacks`` is
    ``"python"``, or ``"all"`` for native frames too. ``skip_actions`` lists events to omit, such as
    ``"free_completed"``.
    """
    _plugin.record_history(enabled, context, stacks, max_entries, clear_history, list(skip_actions))


def is_history_enabled() -> bool:
    """Whether a history is recorded."""
    return _plugin.is_history_enabled()


def snapshot(device: Device = None, include_traces: bool = True) -> dict[str, Any]:
    """A snapshot of a device, with PyTorch's keys; of all devices for ``None``."""
    return _plugin.snapshot(None if device is None else index_of(device), None, include_traces)


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments of all devices with their blocks, or those of one pool."""
    segments: list[dict[str, Any]] = _plugin.snapshot(None, mempool_id, include_traces)["segments"]
    return segments


def dump_snapshot(path: str | os.PathLike[str] = "dump_snapshot.pickle") -> None:
    """Writes a snapshot of all devices to a file: ``.pickle`` for PyTorch's memory viewer, or ``.json``."""
    _plugin.dump_snapshot(path)


def allocation_traceback(pointer: int) -> list[dict[str, Any]] | None:
    """The stack of the allocation at ``pointer``; ``None`` if the history has none."""
    return _plugin.allocation_traceback(pointer)


def set_memory_metadata(metadata: str | dict[str, Any]) -> None:
    """Sets the metadata of this thread's events; a dictionary becomes JSON.

    Each distinct text is kept until the process ends, so texts should name phases and not count steps.
    """
    text = json.dumps(metadata, separators=(",", ":")) if isinstance(metadata, dict) else metadata
    _native.set_memory_metadata(text)


def get_memory_metadata() -> str:
    """The metadata of this thread's events."""
    return _native.get_memory_metadata()


def annotate_memory(pointer: int, metadata: str) -> None:
    """Records the event ``annotate`` for the memory in use at ``pointer``, which keeps the metadata of its allocation."""
    _plugin.annotate_memory(pointer, metadata)


def metrics(device: Device = None, labels: dict[str, str] | None = None) -> str:
    """The statistics of a device in Prometheus' text format, with ``labels`` besides the device."""
    return _plugin.metrics(index_of(device), labels or {})


def last_out_of_memory() -> dict[str, Any] | None:
    """The last request that ran out of memory, on any device and thread: its figures and its report.

    Out-of-memory observers can read their request here.
    """
    return _plugin.last_out_of_memory()
