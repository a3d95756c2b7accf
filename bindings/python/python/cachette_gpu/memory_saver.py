"""The calls of torch_memory_saver over Cachette's pools, for programs that generate and train in turns.

>>> from cachette_gpu.memory_saver import torch_memory_saver  # doctest: +SKIP

Memory that is allocated in a region returns to the device by ``pause``, and has its addresses again after ``resume``.
Graphs that use it stay valid. :func:`install` lets a library that imports ``torch_memory_saver`` find this module.

The import enables Cachette, unless CUDA is initialised already. Then :func:`cachette_gpu.torch.enable` must have been
called before. docs/memory_saver.md compares the calls with those of torch_memory_saver.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

import cachette_gpu.torch

from . import _native
from ._errors import EnableError, Error, PoolError

__all__ = ["TorchMemorySaver", "configure_subprocess", "install", "torch_memory_saver"]

_DEFAULT = "default"
#: What a region does with contents: loses them, or keeps them in host memory or in a file.
_DISCARD, _HOST, _FILE = range(3)


class _Region:
    """The pools of one tag and one way to keep contents."""

    def __init__(self, tag: str, keeps: int) -> None:
        self.tag = tag
        self.keeps = keeps
        self._own: list[Any] = []
        #: The device and the identifier of each pool of PyTorch that a graph was captured in. The pool ends with its graphs.
        self.graphs: list[tuple[int, tuple[int, int]]] = []

    @property
    def pools(self) -> list[Any]:
        """All pools, which pause and resume together."""
        return [*self._graph_pools(), *self._own]

    def _graph_pools(self) -> list[_native.Pool]:
        """The pools of graphs that still exist. Each has one user more as long as the result lives."""
        opened = []
        for device, identifier in list(self.graphs):
            try:
                opened.append(_native.Allocator.shared(device).open_pool(identifier))
            except PoolError:
                self.graphs.remove((device, identifier))
        return opened

    def awake(self) -> Any:
        """A pool that serves requests: another one while the last is paused."""
        if not self._own or self._own[-1].is_asleep:
            # A program that allocates in each pause would otherwise leave a pool behind each time.
            unused = [pool for pool in self._own if not any(it.stats()["allocations"] for it in pool._own_pools().values())]
            # A graph may still use one of them.
            self.graphs += [identifier for pool in unused for identifier in _identifiers(pool)]
            self._own = [pool for pool in self._own if pool not in unused]
            self._own.append(cachette_gpu.torch.Pool(tag=f"memory_saver {self.tag}"))
        return self._own[-1]

    def identifiers(self) -> set[tuple[int, tuple[int, int]]]:
        """The device and the identifier of each pool."""
        return {*self.graphs, *(identifier for pool in self._own for identifier in _identifiers(pool))}


def _identifiers(pool: cachette_gpu.torch.Pool) -> list[tuple[int, tuple[int, int]]]:
    """The device and the identifier of a pool on each device."""
    return [(device, native.id) for device, native in pool._own_pools().items()]


class TorchMemorySaver:
    """Memory that can be paused, by tags; ``torch_memory_saver`` is the one of the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._regions: dict[tuple[str, int], _Region] = {}
        self._folder: str | None = os.environ.get("TMS_DISK_BACKUP_DIR")
        self._suspends_nccl = False
        #: The communicators that are suspended.
        self._suspended: list[int] = []

    @contextlib.contextmanager
    def region(self, tag: str = _DEFAULT, enable_cpu_backup: bool = False, enable_disk_backup: bool = False,
               cpu_backup_backend: str | None = None) -> Iterator[None]:
        """Allocates what this thread requests so that ``pause(tag)`` can release it.

        With ``enable_cpu_backup`` the contents are kept in host memory, with ``enable_disk_backup`` in files of the
        folder of :meth:`set_disk_backup_dir`, and otherwise lost. ``cpu_backup_backend`` is accepted; contents are
        always in pinned memory.
        """
        if enable_cpu_backup and enable_disk_backup:
            raise ValueError("contents are kept in host memory or in files; set one of enable_cpu_backup and "
                             "enable_disk_backup")
        if enable_disk_backup and self._folder is None:
            raise ValueError("there is no folder for contents; call set_disk_backup_dir() first")
        if cpu_backup_backend is not None and not enable_cpu_backup:
            raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
        with self._pool(tag, _FILE if enable_disk_backup else _HOST if enable_cpu_backup else _DISCARD):
            yield

    @contextlib.contextmanager
    def cuda_graph(self, cuda_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global",
                   tag: str = _DEFAULT, enable_cpu_backup: bool = False,
                   cpu_backup_backend: str | None = None) -> Iterator[None]:
        """As ``torch.cuda.graph``, and its memory can be paused."""
        keeps = _HOST if enable_cpu_backup else _DISCARD
        if pool is None:
            pool = self._pool(tag, keeps).id
        with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            yield
        identifier = tuple(getattr(pool, "id", pool))
        device = torch.cuda.current_device()
        with self._lock:
            if not any((device, identifier) in region.identifiers() for region in self._regions.values()):
                self._region(tag, keeps).graphs.append((device, identifier))

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """Allocates what this thread requests outside all regions. What is unused at the end goes to the device."""
        _check()
        pool = cachette_gpu.torch.Pool()
        try:
            with pool:
                yield
        finally:
            pool.release()

    def pause(self, tag: str | None = None) -> dict[str, Any]:
        """Releases the memory of the regions with a tag, or of all. Returns the released and the saved bytes.

        ``left`` says who holds the rest of the current device: libraries by their labels, the cache, and what is outside
        Cachette, such as the context and NCCL.
        """
        slept: dict[str, Any] = {"released": 0, "saved": 0}
        torch.cuda.synchronize()
        with self._lock:
            for region in self._tagged(tag):
                for pool in region.pools:
                    figures = pool.sleep(region.keeps != _DISCARD)
                    slept = {key: slept[key] + figures[key] for key in slept}
                    if region.keeps == _FILE and pool.is_asleep:
                        pool.spill_contents(self._folder)
            if tag is None and self._suspends_nccl and not self._suspended:
                self._suspended = _suspend(_communicators())
        if tag is None:
            cachette_gpu.torch.empty_cache()
        if any(region.keeps == _FILE for region in self._tagged(tag)):
            cachette_gpu.torch.release_contents()
        slept["left"] = _native.Allocator.shared(torch.cuda.current_device()).memory_holders()
        return slept

    def resume(self, tag: str | None = None) -> None:
        """Allocates the memory again at the same addresses, with the contents that were kept."""
        with self._lock:
            for region in self._tagged(tag):
                for pool in region.pools:
                    pool.wake()
            while tag is None and self._suspended:
                _call_nccl("ncclCommResume", self._suspended[-1])
                self._suspended.pop()

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """A copy of the kept contents of a paused tensor on the host; ``None`` if none are kept.

        ``zero_copy`` is accepted, and the result is a copy all the same.
        """
        if not x.is_cuda or not x.is_contiguous():
            raise ValueError("the contents of contiguous tensors on a GPU are kept; pass one of those")
        with self._lock:
            for region in self._tagged(None):
                for pool in region.pools:
                    if pool.is_asleep and (found := pool.read_contents(x.data_ptr(), x.nbytes)) is not None:
                        return torch.frombuffer(found, dtype=torch.uint8).view(x.dtype).view(x.shape)
        return None

    def set_disk_backup_dir(self, path: str) -> None:
        """Sets the folder for the contents of regions with ``enable_disk_backup``; it is made if it is missing."""
        os.makedirs(path, exist_ok=True)
        self._folder = path

    @property
    def enabled(self) -> bool:
        """Whether PyTorch's memory comes from Cachette."""
        return cachette_gpu.torch.is_enabled()

    @property
    def hook_mode(self) -> str:
        """Cachette needs no hook; ``preload`` and ``torch`` are the same here."""
        return "torch"

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        if mode not in ("preload", "torch"):
            raise ValueError(f"{mode!r} is no hook mode; use 'preload' or 'torch', which are the same here")

    @property
    def suspends_nccl(self) -> bool:
        """Whether ``pause()`` also releases the memory of the communicators of ``torch.distributed``.

        ``resume()`` gets it back. It needs NCCL 2.29.7, or an RCCL that has ``ncclCommSuspend``.
        """
        return self._suspends_nccl

    @suspends_nccl.setter
    def suspends_nccl(self, value: bool) -> None:
        if value:
            _nccl("ncclCommSuspend")
        self._suspends_nccl = value

    @property
    def memory_margin_bytes(self) -> int:
        """Bytes of the device that PyTorch's memory leaves free, by a limit for this process."""
        _, total = torch.cuda.mem_get_info()
        return round(total * (1 - cachette_gpu.torch.get_per_process_memory_fraction()))

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        _, total = torch.cuda.mem_get_info()
        cachette_gpu.torch.set_per_process_memory_fraction(1 - value / total)

    @property
    def retain_cpu_backup(self) -> bool:
        """Contents are not kept after ``resume``; only their host memory is, for the next ``pause``."""
        return False

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        if value:
            raise NotImplementedError("contents are not kept after resume(); copy what is needed by get_cpu_backup() "
                                      "before it")

    def _region(self, tag: str, keeps: int) -> _Region:
        _check()
        with self._lock:
            return self._regions.setdefault((tag, keeps), _Region(tag, keeps))

    def _pool(self, tag: str, keeps: int) -> Any:
        with self._lock:
            return self._region(tag, keeps).awake()

    def _tagged(self, tag: str | None) -> list[_Region]:
        return [region for region in self._regions.values() if tag in (None, region.tag)]

    def _route_all(self) -> None:
        """Makes all memory of the process part of the default region, as ``TMS_INIT_ENABLE=1`` asks."""
        keeps = _HOST if os.environ.get("TMS_INIT_ENABLE_CPU_BACKUP") == "1" else _DISCARD
        pool = self._pool(_DEFAULT, keeps)
        pool._pool_of(torch.cuda.current_device()).route_all()


def _check() -> None:
    if not cachette_gpu.torch.is_enabled():
        raise EnableError("CUDA was initialised before Cachette was enabled; import cachette_gpu.memory_saver, or call "
                          "cachette_gpu.torch.enable(), before the first use of a GPU")


def _nccl(name: str) -> Any:
    """A function of the NCCL or RCCL that PyTorch uses."""
    for library in ("libnccl.so.2", "librccl.so.1"):
        try:
            return getattr(ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW), name)
        except (OSError, AttributeError):
            continue
    raise Error(f"there is no {name} in this process; use NCCL 2.29.7 or later, and PyTorch with torch.distributed")


def _call_nccl(name: str, communicator: int, *arguments: int) -> None:
    status = _nccl(name)(ctypes.c_void_p(communicator), *arguments)
    if status != 0:
        raise Error(f"{name} failed with status {status}; NCCL_DEBUG=WARN says why")


def _communicators() -> list[int]:
    """The communicators of the current device, of every process group."""
    dist: Any = torch.distributed
    if not dist.is_available() or not dist.is_initialized():
        return []
    device = torch.device("cuda", torch.cuda.current_device())
    found = []
    for group in dist.distributed_c10d._world.pg_map:
        with contextlib.suppress(RuntimeError):  # A group without a backend for GPUs.
            pointer = getattr(group._get_backend(device), "_comm_ptr", None)
            found.append(0 if pointer is None else pointer())
    return sorted({communicator for communicator in found if communicator})


def _suspend(communicators: list[int]) -> list[int]:
    """Releases the memory of communicators, of all or of none."""
    suspended: list[int] = []
    try:
        for communicator in communicators:
            _call_nccl("ncclCommSuspend", communicator, 1)  # NCCL_SUSPEND_MEM
            suspended.append(communicator)
    except Error:
        for communicator in suspended:
            _call_nccl("ncclCommResume", communicator)
        raise
    return suspended


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Nothing is preloaded: a child process that imports this module is configured."""
    yield


def install() -> None:
    """Lets ``import torch_memory_saver`` in this process find this module, for libraries that have the name fixed."""
    other = sys.modules.get("torch_memory_saver")
    if other is not None and other is not sys.modules[__name__]:
        raise Error("torch_memory_saver is imported already; call install() before the libraries that import it")
    sys.modules["torch_memory_saver"] = sys.modules[__name__]


#: The one of the process.
torch_memory_saver = TorchMemorySaver()

if not torch.cuda.is_initialized():
    if not cachette_gpu.torch.is_enabled():
        cachette_gpu.torch.enable()
    if os.environ.get("TMS_INIT_ENABLE") == "1":
        torch_memory_saver._route_all()
