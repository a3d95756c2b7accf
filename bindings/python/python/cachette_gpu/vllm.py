"""Cachette in vLLM: an entry point that vLLM calls in each of its processes.

It does nothing unless ``CACHETTE_VLLM=1``. Then PyTorch's memory comes from Cachette, and vLLM's sleep mode uses
Cachette's tagged pools instead of the built-in allocator.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Memory", "SleepBackend", "register"]

#: The variable that enables the entry point.
VARIABLE = "CACHETTE_VLLM"
#: Where vLLM keeps its allocator for sleep mode, and the backends that use it.
_ALLOCATOR = "vllm.device_allocator"
_BACKENDS = "vllm.device_allocator.sleep_mode_backend"
#: Tags of memory that no model file can restore: vLLM keeps its contents at every level.
_ALWAYS_KEPT = ("runtime", "cudagraph")

_lock = threading.Lock()
_registered = False


def register() -> None:
    """Puts Cachette into vLLM; the entry point ``vllm.general_plugins``. A second call does nothing."""
    global _registered
    if os.environ.get(VARIABLE) != "1":
        return
    with _lock:
        if _registered:
            return
        from . import torch

        if not torch.is_enabled():
            # Pools sleep only with elastic segments.
            torch.enable(os.environ.get("CACHETTE_ALLOC_CONF", "expandable_segments:True"), compiled=True)
        _offer_sleep()
        _registered = True


def _offer_sleep() -> None:
    """Puts Cachette's pools behind vLLM's sleep mode, where this vLLM permits it."""
    try:
        allocator: Any = importlib.import_module(_ALLOCATOR)
        factory = importlib.import_module(_BACKENDS).SleepModeBackendFactory
        if not hasattr(allocator, "get_mem_allocator_instance"):
            raise AttributeError("get_mem_allocator_instance")
    except (ImportError, AttributeError) as why:
        print(f"cachette: this vLLM has no sleep backends of others ({why}), so its sleep mode stays as it is; use "
              "vLLM 0.25 or later for Cachette's", file=sys.stderr)
        return
    # The name may be taken over from another module, which others import it from.
    defining: Any = sys.modules.get(allocator.get_mem_allocator_instance.__module__, allocator)
    allocator.get_mem_allocator_instance = defining.get_mem_allocator_instance = Memory.instance
    factory.register_backend("cachette", __name__, "SleepBackend")


class Memory:
    """The memory of vLLM's sleep mode, with the calls of vLLM's own allocator for it: a pool for each tag."""

    _instance: Memory | None = None

    def __init__(self) -> None:
        self._pools: dict[str, Any] = {}

    @classmethod
    def instance(cls) -> Memory:
        """The one of the process."""
        with _lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def use_memory_pool(self, tag: str | None = None) -> AbstractContextManager[Any]:
        """Leads this thread's requests to the pool with a tag."""
        pool: AbstractContextManager[Any] = self._pool("default" if tag is None else tag)
        return pool

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[tuple[int, int]]:
        """The identifier of the pool with the tag ``cudagraph``, which vLLM gives to ``torch.cuda.graph``."""
        yield self._pool("cudagraph").id

    def _pool(self, tag: str) -> Any:
        from . import torch

        with _lock:
            if tag not in self._pools:
                # Connectors register the memory of this tag; vLLM ends that before it suspends.
                self._pools[tag] = torch.Pool(tag=tag, registered=tag == "kv_cache", before_sleep=lambda _: None)
            return self._pools[tag]

    def sleep(self, offload_tags: Sequence[str] | str | None = None) -> None:
        """Releases the memory of every pool; those with a tag in ``offload_tags`` keep their contents in host memory."""
        from . import torch

        kept = ("default",) if offload_tags is None else (offload_tags,) if isinstance(offload_tags, str) else offload_tags
        asleep: list[Any] = []
        for tag, pool in self._pools.items():
            try:
                pool.sleep(keep=tag in kept)
            except Exception:
                for other in asleep:
                    other.wake()
                raise
            asleep.append(pool)
        # What the default pool does not use goes back too.
        torch.empty_cache()

    def discard(self, tags: Sequence[str] | str) -> None:
        """Releases the memory of the pools with these tags, and keeps no contents. A pool that sleeps stays as it is."""
        for tag in (tags,) if isinstance(tags, str) else tags:
            if tag in self._pools:
                self._pools[tag].sleep(keep=False)

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Allocates the memory again at the same addresses: of the pools with these tags, or of all."""
        for tag, pool in self._pools.items():
            if tags is None or tag in tags:
                pool.wake()

    def get_current_usage(self) -> int:
        """The bytes that tensors hold in the pools of the current device."""
        return sum(pool.stats()["allocated_bytes"] for pool in self._pools.values())


class SleepBackend:
    """A sleep backend of vLLM over :class:`Memory`; its name in ``sleep_mode_backend`` is ``cachette``."""

    def __init__(self) -> None:
        self._state = "RUNNING"

    def suspend(self, level: int = 1) -> None:
        """Releases all memory. Level 1 keeps the weights in host memory, and both levels what vLLM cannot restore."""
        Memory.instance().sleep(offload_tags=("weights", *_ALWAYS_KEPT) if level == 1 else _ALWAYS_KEPT)
        self._state = "SUSPENDED"

    def discard(self, tags: Sequence[str]) -> None:
        """Releases the memory with these tags, and keeps no contents."""
        Memory.instance().discard(tags)
        self._state = "SUSPENDED"

    def resume(self, tags: Sequence[str] | None = None) -> None:
        """Allocates the memory with these tags again at the same addresses, or all."""
        self._state = "RESUMING"
        try:
            Memory.instance().wake_up(tags)
        except BaseException:
            self._state = "SUSPENDED"
            raise
        self._state = "RUNNING"

    def state(self) -> str:
        """``RUNNING``, ``SUSPENDED`` or ``RESUMING``."""
        return self._state

    @classmethod
    def is_supported(cls) -> bool:
        """Whether PyTorch's memory comes from Cachette."""
        from . import torch

        return torch.is_enabled()

    @classmethod
    def preserves_communicators(cls) -> bool:
        """Communicators are outside the pools, so they stay as they are."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        """Kernels stay loaded."""
        return True

    @classmethod
    def preserves_graphs_with_communicators(cls) -> bool:
        """Not promised: a communicator may have registered memory of a graph, and the registration names the old memory."""
        return False

    @classmethod
    def supports_durable_storage(cls) -> bool:
        """The contents are in host memory of the process."""
        return False
