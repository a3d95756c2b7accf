"""Cachette as CuPy's allocator.

>>> import cachette_gpu.cupy
>>> cachette_gpu.cupy.enable()  # doctest: +SKIP

From then on ``cupy.empty`` and all other arrays get their memory from Cachette, in the order of CuPy's current stream.
PyTorch with :func:`cachette_gpu.torch.enable` shares the same cache, in either order.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from types import TracebackType
from typing import Any

from . import _native, _process
from ._errors import EnableError, Error
from .torch._figures import flatten

__all__ = ["EnableError", "capture", "disable", "enable", "is_enabled", "stats"]

#: The first version whose calls of C functions catch exceptions of C++.
CATCHES = (14, 2)

_lock = threading.Lock()
#: CuPy's allocator before Cachette; ``None`` while Cachette is not enabled.
_before: Any = None


def enable(config: str | None = None) -> None:
    """Makes Cachette the allocator of CuPy's arrays, for all threads.

    ``config`` is a text such as ``"elastic_setting:compact"``; without one, ``CACHETTE_ALLOC_CONF`` is read. Arrays
    that exist already stay where they are. A second call with the same configuration does nothing.
    """
    global _before
    with _lock:
        cupy = _usable_cupy()
        text = _native.normalise_config(config)
        backend = "hip" if cupy.cuda.runtime.is_hip else "cuda"
        allocator = _allocator(cupy)
        _process.start(backend, text, is_given=config is not None)
        if _before is not None:
            return
        _tell_of_held(cupy, backend)
        before = cupy.cuda.get_allocator()
        # It raises inside `using_allocator`; then CuPy keeps its allocator.
        cupy.cuda.set_allocator(allocator)
        _before = before


def disable() -> None:
    """Gives CuPy back the allocator that it had. Arrays of Cachette stay valid, and are freed by Cachette."""
    global _before
    with _lock:
        if _before is not None:
            import cupy

            cupy.cuda.set_allocator(_before)
            _before = None


def is_enabled() -> bool:
    """Whether CuPy's memory comes from Cachette."""
    return _before is not None


def stats(device: int = 0) -> dict[str, Any]:
    """The statistics of a device, with keys such as ``"allocated_bytes.all.current"``.

    They cover all libraries of the process that use Cachette. They are zero before the first allocation.
    """
    return flatten(_native.plugin.memory_stats(device))


class capture:
    """Captures a stream into a graph, with memory of a separate pool.

    ``with cachette_gpu.cupy.capture(stream) as captured:`` makes the stream current, begins the capture and ends it.
    All memory that the block allocates in captured streams comes from a pool that no other request uses, so the graph
    can be launched again. Keep ``captured`` as long as its graph: the pool goes with it. """

    #: CuPy's graph, after the block.
    graph: Any

    def __init__(self, stream: Any, mode: int | None = None) -> None:
        self._stream = stream
        self._mode = mode
        self._pool: _native.cupy.CapturePool | None = None
        self.graph = None

    def __enter__(self) -> capture:
        if not is_enabled():
            raise Error("CuPy's memory does not come from Cachette; call cachette_gpu.cupy.enable() first")
        if self._pool is not None:
            raise Error("this capture was used already; make another")
        import cupy

        self._stream.__enter__()
        try:
            self._stream.begin_capture(self._mode)
            try:
                self._pool = _native.cupy.CapturePool(cupy.cuda.Device().id, self._stream.ptr)
            except BaseException:
                self._stream.end_capture()
                raise
        except BaseException:
            self._stream.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None,
                 traceback: TracebackType | None) -> None:
        assert self._pool is not None
        try:
            try:
                self.graph = self._stream.end_capture()
            finally:
                self._pool.end()
        except Exception:
            # What went wrong in the block broke the capture too.
            if raised is None:
                raise
        finally:
            self._stream.__exit__(kind, raised, traceback)

    def launch(self, stream: Any = None) -> None:
        """Launches the graph, in ``stream`` or in the stream that was captured."""
        if self.graph is None:
            raise Error("there is no graph; leave the block of the capture first")
        self.graph.launch(self._stream if stream is None else stream)

    def stats(self) -> dict[str, int]:
        """The statistics of the pool: ``allocations``, ``allocated_bytes``, ``segments``, ``reserved_bytes``."""
        if self._pool is None:
            raise Error("the capture has not begun; enter its block first")
        return self._pool.stats()


def _usable_cupy() -> Any:
    """CuPy, if it has what Cachette needs."""
    try:
        import cupy
    except (ImportError, OSError) as why:  # The latter is for a missing library of the vendor.
        raise ImportError(f"CuPy cannot be imported ({why}); install it: pip install cupy-cuda13x, or the package for "
                          "your CUDA or ROCm that https://docs.cupy.dev/en/stable/install.html names") from why
    for place, name in ((cupy.cuda, "set_allocator"), (cupy.cuda, "get_allocator"),
                        (getattr(cupy.cuda, "memory", None), "CFunctionAllocator"),
                        (getattr(cupy.cuda, "memory", None), "PythonFunctionAllocator")):
        if not hasattr(place, name):
            raise EnableError(f"this CuPy ({cupy.__version__}) has no {name}, which Cachette needs; use CuPy 14.2")
    if os.environ.get("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0"):
        raise EnableError("CuPy uses a default stream for each thread, whose memory no other thread could use in "
                          "order; unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM")
    return cupy


def _allocator(cupy: Any) -> Any:
    """What ``cupy.cuda.set_allocator`` takes."""
    try:
        exported = importlib.import_module("cupy_backends.cuda.stream").__pyx_capi__["get_current_stream_ptr"]
    except (ImportError, AttributeError, KeyError) as why:
        raise EnableError(f"this CuPy ({cupy.__version__}) does not export get_current_stream_ptr, by which Cachette "
                          "learns the current stream; use CuPy 14.2") from why
    try:
        malloc, free = _native.cupy.connect(exported)
    except Error as why:
        raise EnableError(f"this CuPy ({cupy.__version__}) cannot be connected: {why}") from why
    memory = cupy.cuda.memory
    if _version(cupy.__version__) >= CATCHES:
        return memory.CFunctionAllocator(0, malloc, free, _native).malloc
    return memory.PythonFunctionAllocator(_native.cupy.malloc, _native.cupy.free).malloc


def _version(text: str) -> tuple[int, int]:
    """The first two numbers of a version; a part that is no number counts as 0."""
    parts = [*text.split("."), "0"][:2]
    major, minor = (int(part) if part.isdigit() else 0 for part in parts)
    return major, minor


def _tell_of_held(cupy: Any, backend: str) -> None:
    """Says how much CuPy's own pool holds, which Cachette cannot use."""
    if not _is_driver_used(backend):
        return
    pool = cupy.get_default_memory_pool()
    held = pool.total_bytes()
    if held:
        print(f"cachette: CuPy's own pool holds {held} bytes of this device, of which {pool.used_bytes()} are in use; "
              "cupy.get_default_memory_pool().free_all_blocks() releases the others", file=sys.stderr)


def _is_driver_used(backend: str) -> bool:
    """Whether anything may have been allocated. A question to CuPy would initialise the driver, and forbid forks."""
    if backend != "cuda":
        return True
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        not_initialised = 3
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != not_initialised)
    except (OSError, AttributeError):
        return False
