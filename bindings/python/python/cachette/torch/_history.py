"""What happened to memory and what is held, with the names and meanings of ``torch.cuda.memory``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import _native
from ._device import Device, index_of

_plugin = _native.plugin

#: How many events are kept unless another number is asked for: 96 bytes each, from the start.
USUAL_ENTRIES = 100_000


def record_memory_history(enabled: str | None = "all", context: str | None = "all", stacks: str = "all",
                          max_entries: int = USUAL_ENTRIES, clear_history: bool = False,
                          skip_actions: Sequence[str] = ()) -> None:
    """Records what happens to memory from now on, on every device; ``None`` stops that and forgets everything.

    ``enabled`` is ``"all"``, or ``"state"`` for what is held alone. ``context`` says of what it is asked where in the
    program it happens: of nothing (``None``), of what is held (``"state"``), of allocations (``"alloc"``) or of frees
    too (``"all"``). ``stacks`` is ``"python"``, or ``"all"`` for native callers too. ``skip_actions`` names events to
    leave out, such as ``"free_completed"``.
    """
    _plugin.record_history(enabled, context, stacks, max_entries, clear_history, list(skip_actions))


def is_history_enabled() -> bool:
    """Whether a history is recorded."""
    return _plugin.is_history_enabled()


def snapshot(device: Device = None, include_traces: bool = True) -> dict[str, Any]:
    """What a device holds and what happened on it, with PyTorch's keys; all devices for ``None``."""
    return _plugin.snapshot(None if device is None else index_of(device), None, include_traces)


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments of all devices with their blocks, or those of one pool."""
    segments: list[dict[str, Any]] = _plugin.snapshot(None, mempool_id, include_traces)["segments"]
    return segments


def dump_snapshot(path: str | os.PathLike[str] = "dump_snapshot.pickle") -> None:
    """Writes a snapshot of all devices to a file: ``.pickle`` for PyTorch's memory viewer, or ``.json``."""
    _plugin.dump_snapshot(path)


def allocation_traceback(pointer: int) -> list[dict[str, Any]] | None:
    """Where the memory that begins at ``pointer`` was allocated; ``None`` if the history does not know."""
    return _plugin.allocation_traceback(pointer)


def set_memory_metadata(metadata: str) -> None:
    """Lets every event of this thread carry a text, until it is set again; an empty one is none.

    Every different text is kept as long as the process, so it should name phases and not count steps.
    """
    _native.set_memory_metadata(metadata)


def get_memory_metadata() -> str:
    """What this thread's events carry now."""
    return _native.get_memory_metadata()


def metrics(device: Device = None, labels: dict[str, str] | None = None) -> str:
    """The figures of a device in the text form that Prometheus reads, with ``labels`` beside the device."""
    return _plugin.metrics(index_of(device), labels or {})


def last_out_of_memory() -> dict[str, Any] | None:
    """The last request that failed for want of memory, on whichever device and thread: its figures and its report.

    Observers find the request there that they are told of.
    """
    return _plugin.last_out_of_memory()
