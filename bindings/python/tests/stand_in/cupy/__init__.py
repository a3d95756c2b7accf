"""A stand-in for CuPy, whose arrays are memory alone. It calls allocators as CuPy 14.2 does.

``STAND_IN_CUPY`` says which CuPy it plays: ``good``, ``older`` (catches no exception of C++), ``no-hook``,
``no-stream``, ``other-stream`` (another type of function), or ``holding`` (has used its own pool).
"""

import os

KIND = os.environ["STAND_IN_CUPY"]
__version__ = "13.6.0" if KIND == "older" else "14.2.0"

from . import cuda  # noqa: E402
from .cuda import memory as _memory  # noqa: E402


class ndarray:
    def __init__(self, size):
        self.data = cuda.alloc(size)
        self.size = size


def empty(size):
    return ndarray(size)


def get_default_memory_pool():
    return _memory.pool
