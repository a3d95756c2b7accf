"""Private memory pools for tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from .. import _native
from .._errors import ConfigError, Error
from ._device import Device, index_of
from ._enable import is_enabled

#: The statistics of an unused pool.
_EMPTY = {"allocations": 0, "allocated_bytes": 0, "segments": 0, "reserved_bytes": 0}

#: Slots whose functions were handed out: a ``MemPool`` may use them until the process ends.
_handed_out: set[Any] = set()


class Pool:
    """A private memory pool for tensors.

    ``with pool:`` routes this thread's requests on the current device to it. If Cachette is enabled, it is a pool of
    Cachette. With PyTorch's own allocator, it is a ``torch.cuda.MemPool`` whose segments come from :attr:`allocator`.
    That allocator can also be passed to another ``MemPool``. Other threads, such as that of ``backward()``, are not
    routed.

    ``source`` names the library that allocates segments instead of the driver: ``"nccl"``, ``"nvshmem"``, ``"rccl"`` or
    ``"rocshmem"``. With ``no_split`` every tensor has its own segment. ``config`` is for the cache below PyTorch's
    allocator. If Cachette is enabled, its own configuration also applies to pools. Pools with the same ``tag`` sleep
    and wake as one: :func:`cachette.torch.sleep`.
    """

    def __init__(self, source: str | None = None, config: str | None = None, no_split: bool = False,
                 tag: str = "") -> None:
        if config is not None:
            config = _native.normalise_config(config)
            if is_enabled():
                raise ConfigError("a pool of an enabled Cachette follows the configuration that was given to enable(); "
                                  "leave out `config`")
        self._source = source
        self._config = config
        self._no_split = no_split
        self._tag = tag
        self._lock = threading.Lock()
        self._slot: _native.Slot | None = None
        self._wrapper: Any = None
        #: The pool of each device: ours, or PyTorch's.
        self._pools: dict[int, Any] = {}
        self._entered = threading.local()
        self._released = False

    @property
    def allocator(self) -> Any:
        """The allocator argument of ``torch.cuda.MemPool``.

        It stays usable until :meth:`release`, which must follow the last ``MemPool`` that uses it. A process has 32.
        """
        self._check()
        with self._lock:
            wrapper = self._allocator()
            _handed_out.add(self._slot)
            return wrapper

    def _allocator(self) -> Any:
        if self._wrapper is None:
            import torch

            self._slot = _native.Slot(self._source, self._config, self._no_split)
            self._wrapper = torch._C._cuda_customAllocator(self._slot.alloc_address, self._slot.free_address)
        return self._wrapper

    def _pool_of(self, device: int) -> Any:
        with self._lock:
            if device not in self._pools:
                self._pools[device] = self._create(device)
            return self._pools[device]

    def _create(self, device: int) -> Any:
        if is_enabled():
            return _native.plugin.create_pool(device, self._source, self._no_split, self._tag)
        import torch

        with torch.cuda.device(device):
            return torch.cuda.MemPool(self._allocator(), no_split=self._no_split)

    def __enter__(self) -> Pool:
        self._check()
        device = index_of()
        pool = self._pool_of(device)
        guard: AbstractContextManager[Any] = pool if is_enabled() else _routed(pool, device)
        guard.__enter__()
        self._guards().append(guard)
        return self

    def __exit__(self, *exception: Any) -> None:
        guards = self._guards()
        if not guards:
            raise Error("this thread has not entered the pool; leave it on the thread that entered it")
        guards.pop().__exit__(*exception)

    def _guards(self) -> list[AbstractContextManager[Any]]:
        """The pools that this thread has entered."""
        guards: list[AbstractContextManager[Any]] = self._entered.__dict__.setdefault("guards", [])
        return guards

    @property
    def id(self) -> tuple[int, int]:
        """The identifier of the pool on the current device, for the ``pool`` of ``torch.cuda.graph``.

        The graph then uses memory that sleeps and wakes with the pool.
        """
        self._check()
        name: tuple[int, int] = self._pool_of(index_of()).id
        return name

    def stats(self, device: Device = None) -> dict[str, int]:
        """The statistics of the pool on a device: allocations, allocated_bytes, segments, reserved_bytes.

        Below PyTorch's own allocator an allocation is one of PyTorch's segments.
        """
        self._check()
        number = index_of(device)
        if is_enabled():
            pool = self._pools.get(number)
            return dict(_EMPTY) if pool is None else pool.stats()
        return dict(_EMPTY) if self._slot is None else self._slot.stats(number)

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

    @property
    def is_asleep(self) -> bool:
        """Whether the pool is asleep on any device."""
        return any(pool.is_asleep for pool in self._own_pools().values())

    def _own_pools(self) -> dict[int, _native.Pool]:
        """The pools if Cachette is enabled; PyTorch's own cannot sleep."""
        self._check()
        if not is_enabled():
            raise Error("a pool of PyTorch's own allocator cannot sleep; call "
                        "cachette.torch.enable() at the start of the program")
        with self._lock:
            return dict(self._pools)

    def release(self) -> None:
        """Stops using the pool; tensors stay valid, unused memory is released. A second call does nothing."""
        with self._lock:
            self._released = True
            for pool in self._pools.values():
                if isinstance(pool, _native.Pool):
                    pool.release()
            # PyTorch's pools are dropped first, since they release memory to the slot.
            self._pools.clear()
            self._wrapper = None
            _handed_out.discard(self._slot)
            self._slot = None

    def _check(self) -> None:
        if self._released:
            raise Error("this pool was released; make another")


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


def _routed(pool: Any, device: int) -> AbstractContextManager[Any]:
    """PyTorch's context manager that routes a thread's requests to a pool."""
    import torch

    routed: AbstractContextManager[Any] = torch.cuda.use_mem_pool(pool, device)
    return routed
