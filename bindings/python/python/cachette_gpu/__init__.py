"""A caching GPU memory allocator for NVIDIA, AMD and host memory.

>>> import cachette_gpu
>>> allocator = cachette_gpu.Allocator("host")  # or "cuda:0", or "hip:1"
>>> stream = allocator.create_stream()
>>> with allocator.allocate(1 << 20, stream) as memory:
...     print(memory.bytes)
1048576

To replace another library's allocator, see :mod:`cachette_gpu.torch`, :mod:`cachette_gpu.cupy`,
:mod:`cachette_gpu.onnxruntime` and :mod:`cachette_gpu.vllm`.
"""

from __future__ import annotations

from ._errors import ConfigError, EnableError, Error, HistoryError, OutOfMemoryError, PoolError
from ._native import VERSION as __version__
from ._native import (
    Allocation,
    Allocator,
    Growable,
    Pinned,
    PinnedAllocation,
    Pool,
    Resident,
    Stream,
    View,
    component,
    devices,
    get_memory_metadata,
    set_memory_metadata,
)

__all__ = [
    "Allocation",
    "Allocator",
    "ConfigError",
    "EnableError",
    "Error",
    "Growable",
    "HistoryError",
    "OutOfMemoryError",
    "Pinned",
    "PinnedAllocation",
    "Pool",
    "PoolError",
    "Resident",
    "Stream",
    "View",
    "__version__",
    "component",
    "devices",
    "get_memory_metadata",
    "set_memory_metadata",
]
