"""Cachette as PyTorch's allocator.

>>> import cachette_gpu.torch
>>> cachette_gpu.torch.enable()  # doctest: +SKIP

:func:`enable` must be called before CUDA is initialised, that is before the first tensor on a GPU. From then on
PyTorch's memory comes from Cachette, and the memory functions of ``torch.cuda`` report Cachette's memory. The functions
here have the same names and meanings, and work whether or not those were replaced.

:class:`Pool` is a private memory pool for tensors, from NCCL or NVSHMEM for example. It can sleep: it releases its
memory to the device, and its tensors keep their addresses. :func:`growable` makes a tensor whose memory comes and goes.

:func:`sanitize` finds memory that is reused while another stream may still use it.
"""

from __future__ import annotations

from .._native import component
from ._addresses import restore_addresses, restore_segments, save_addresses
from ._enable import config, enable, is_enabled
from ._error import EnableError
from ._figures import (
    attach_out_of_memory_observer,
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from ._growable import Growable, growable
from ._history import (
    allocation_traceback,
    annotate_memory,
    dump_snapshot,
    get_memory_metadata,
    is_history_enabled,
    last_out_of_memory,
    memory_snapshot,
    metrics,
    record_memory_history,
    set_memory_metadata,
    snapshot,
)
from ._pool import Pool, release_contents, sleep, wake
from ._sanitize import Sanitizer, SanitizerError, sanitize

__all__ = [
    "EnableError",
    "Growable",
    "Pool",
    "Sanitizer",
    "SanitizerError",
    "allocation_traceback",
    "annotate_memory",
    "attach_out_of_memory_observer",
    "component",
    "config",
    "dump_snapshot",
    "empty_cache",
    "enable",
    "get_memory_metadata",
    "get_per_process_memory_fraction",
    "growable",
    "is_enabled",
    "is_history_enabled",
    "last_out_of_memory",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "metrics",
    "record_memory_history",
    "release_contents",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "restore_addresses",
    "restore_segments",
    "sanitize",
    "save_addresses",
    "set_memory_metadata",
    "set_per_process_memory_fraction",
    "sleep",
    "snapshot",
    "wake",
]
