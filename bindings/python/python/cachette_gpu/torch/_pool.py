"""Private memory pools for tensors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from .. import _native
from .._errors import ConfigError, Error
from ._device import Device, index_of
from ._enable import is_enabled

#: The statistics of an unused pool.
_EMPTY = {"allocations": 0, "allocated_bytes": 0, "segments": 0, "reserved_bytes": 0}


class Pool:
    """A private memory pool for tensors, if Cachette is enabled.

    ``with pool:`` routes this thread's requests on the current device to it. Other threads, such as that of
    ``backward()``, are not routed. Without :func:`cachette_gpu.torch.enable`, and for code that needs a
    ``torch.cuda.MemPool``, use that class: it works with PyTorch's allocator and with the compiled class.

    ``source`` names the library that allocates segments instead of the driver: ``"nccl"``, ``"nvshmem"``, ``"rccl"`` or
    ``"rocshmem"``. With ``no_split`` every tensor has its own segment. Pools with the same ``tag`` sleep and wake as
    one: :func:`cachette_gpu.torch.sleep`. ``config`` must be ``None``: the configuration of Cachette applies to pools.

    With a ``priority``, requests may evict the pool before they fail, the lowest priority first: it sleeps, unless
    :meth:`make_resident` keeps it. ``reload(pool)`` writes contents again that an eviction dropped; without it they are
    kept in host memory. With ``registered``, the memory behind an address never changes, so that it may be registered
    with network cards. ``before_sleep(pool)`` is called before the pool sleeps, and may refuse by an exception. Both
    callbacks get the identifier.
    """

    def __init__(self, source: str | None = None, config: str | None = None, no_split: bool = False,
                 tag: str = "", *, priority: int | None = None, registered: bool = False,
                 reload: Callable[[tuple[int, int]], object] | None = None,
                 before_sleep: Callable[[tuple[int, int]], object] | None = None) -> None:
        if config is not None:
            raise ConfigError("a pool follows the configuration that was given to enable(); leave out `config`")
        self._options = {"source": source, "no_split": no_split, "tag": tag, "priority": priority,
                         "registered": registered, "reload": reload, "before_sleep": before_sleep}
        self._lock = threading.Lock()
        #: The pool of each device.
        self._pools: dict[int, _native.Pool] = {}
        self._entered = threading.local()
        self._released = False

    @property
    def allocator(self) -> NoReturn:
        """Refused: a pool no longer serves a ``torch.cuda.MemPool``."""
        raise Error("a pool no longer serves a torch.cuda.MemPool; enable the compiled class, whose MemPool takes its "
                    "memory from Cachette")

    def _pool_of(self, device: int) -> _native.Pool:
        with self._lock:
            if device not in self._pools:
                self._pools[device] = _native.Allocator.shared(device).create_pool(**self._options)
            return self._pools[device]

    def __enter__(self) -> Pool:
        self._check()
        pool = self._pool_of(index_of())
        pool.__enter__()
        self._guards().append(pool)
        return self

    def __exit__(self, *exception: Any) -> None:
        guards = self._guards()
        if not guards:
            raise Error("this thread has not entered the pool; leave it on the thread that entered it")
        guards.pop().__exit__(*exception)

    def _guards(self) -> list[_native.Pool]:
        """The pools that this thread has entered."""
        guards: list[_native.Pool] = self._entered.__dict__.setdefault("guards", [])
        return guards

    @property
    def id(self) -> tuple[int, int]:
        """The identifier of the pool on the current device, for the ``pool`` of ``torch.cuda.graph``.

        The graph then uses memory that sleeps and wakes with the pool.
        """
        self._check()
        return self._pool_of(index_of()).id

    def stats(self, device: Device = None) -> dict[str, int]:
        """The statistics of the pool on a device: allocations, allocated_bytes, segments, reserved_bytes."""
        self._check()
        pool = self._pools.get(index_of(device))
        return dict(_EMPTY) if pool is None else pool.stats()

    def sleep(self, keep: bool = True, progress: Callable[[int, int], object] | None = None) -> dict[str, int]:
        """Releases the pool's memory to the devices and keeps every address. Returns the released and saved bytes.

        Tensors keep their addresses and must not be used until :meth:`wake`; graphs that use them stay valid. With
        ``keep`` their contents are saved to host memory, otherwise they are lost. ``progress`` is called with the
        completed and the total bytes. It needs elastic segments, the default.
        """
        slept = {"released": 0, "saved": 0}
        asleep: list[_native.Pool] = []
        pools = self._own_pools()
        _synchronize(pools)
        for pool in pools.values():
            was = pool.is_asleep
            try:
                figures = pool.sleep(keep, progress)
            except Error:
                for other in asleep:
                    other.wake()
                raise
            if not was:
                asleep.append(pool)
            slept = {key: slept[key] + figures[key] for key in slept}
        return slept

    def wake(self, progress: Callable[[int, int], object] | None = None) -> int:
        """Allocates the memory again at the same addresses, with the saved contents. Returns the number of bytes."""
        return sum(pool.wake(progress) for pool in self._own_pools().values())

    def read_contents(self, address: int, size: int) -> bytearray | None:
        """Copies contents that the sleeping pool keeps, from an address on; ``None`` if they are not kept."""
        asleep = (pool for pool in self._own_pools().values() if pool.is_asleep)
        found = (pool.read_contents(address, size) for pool in asleep)
        return next((contents for contents in found if contents is not None), None)

    def spill_contents(self, folder: str | os.PathLike[str]) -> int:
        """Moves the contents that the sleeping pool keeps to files in a folder; returns the freed host memory.

        The wake reads them back and compares a checksum. The files have no names, so they end with the process.
        """
        return sum(pool.spill_contents(folder) for pool in self._own_pools().values() if pool.is_asleep)

    @contextlib.contextmanager
    def make_resident(self) -> Iterator[None]:
        """Wakes the pool if it sleeps, and keeps it on its devices during a ``with`` block.

        Queue work on the memory of an evictable pool only inside such a block. If there is too little memory, other
        evictable pools are evicted.
        """
        with contextlib.ExitStack() as guards:
            for pool in self._own_pools().values():
                guards.enter_context(pool.make_resident())
            yield

    @property
    def is_asleep(self) -> bool:
        """Whether the pool is asleep on any device."""
        return any(pool.is_asleep for pool in self._own_pools().values())

    def _own_pools(self) -> dict[int, _native.Pool]:
        """The pool of each device."""
        self._check()
        with self._lock:
            return dict(self._pools)

    def release(self) -> None:
        """Stops using the pool; tensors stay valid, unused memory is released. A second call does nothing."""
        with self._lock:
            self._released = True
            for pool in self._pools.values():
                pool.release()
            self._pools.clear()

    def _check(self) -> None:
        if self._released:
            raise Error("this pool was released; make another")
        if not is_enabled():
            raise Error("a pool needs cachette_gpu.torch.enable() at the start of the program; with PyTorch's own "
                        "allocator use torch.cuda.MemPool")


def sleep(tag: str, keep: bool = True) -> dict[str, int]:
    """Puts every pool with this tag to sleep, on every device; all of them or none. See :meth:`Pool.sleep`."""
    _synchronize(_native.plugin.devices())
    return _native.plugin.sleep(tag, keep)


def wake(tag: str) -> int:
    """Wakes every pool with this tag, on every device; returns the bytes of their memory."""
    return _native.plugin.wake(tag)


def release_contents() -> int:
    """Frees the host memory of pools that are awake again; returns its bytes.

    Otherwise the next sleep reuses it.
    """
    return _native.plugin.release_contents()


def _synchronize(devices: Iterable[int]) -> None:
    """Waits for all work on some devices, including streams that Cachette did not create."""
    import torch

    for device in devices:
        torch.cuda.synchronize(device)
