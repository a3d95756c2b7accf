"""The exceptions of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any


class Error(Exception):
    """An error of Cachette; the text contains the remedy."""


class EnableError(Error, RuntimeError):
    """A library's allocator could not be replaced by Cachette, and stays in use.

    The allocators of the process may be started by then, with the configuration of that call.
    """


class ConfigError(Error, ValueError):
    """An invalid configuration; the text shows the position and the allowed values."""


class HistoryError(Error, ValueError, RuntimeError):
    """Invalid options of a history; the text lists the allowed values."""


class PoolError(Error):
    """A call that a pool refuses in its present state: it sleeps, was released, or cannot sleep."""


class OutOfMemoryError(Error, MemoryError):
    """A request that failed for lack of memory, with the figures at that moment in bytes.

    A figure is ``None`` if the driver query failed, or if it does not apply: a request for more than any device has is
    rejected at once, and a request for pinned memory has no device.
    """

    #: The number of the device.
    device: int | None
    #: The pool of the request.
    pool: tuple[int, int] | None
    #: The bytes that the caller requested.
    requested: int
    #: The bytes that the device was asked for.
    segment: int | None
    #: The device's total memory.
    total: int | None
    #: The device's free memory.
    free: int | None
    #: Memory in use outside this allocator.
    elsewhere: int | None
    #: The memory limit of the allocator.
    limit: int | None
    #: Memory of allocated blocks.
    allocated: int | None
    #: Memory held from the device.
    reserved: int | None
    #: Memory that callers have freed, but other streams still use.
    pending: int | None
    #: Memory held from the device that is not in use.
    unallocated: int | None
    #: The largest free block.
    largest_free: int | None
    #: The sum of the free blocks that are individually too small.
    fragmented: int | None
    #: The figures of every pool, the default pool first.
    pools: list[dict[str, Any]]
    #: The sites that allocated most of the memory in use, as far as a history recorded them; the largest first.
    holders: list[dict[str, Any]]
    #: The remedies that apply.
    hints: list[str]
    #: The whole report as text.
    report: str

    def __init__(
        self,
        text: str,
        figures: dict[str, Any] | None = None,
        holders: Callable[[], list[dict[str, Any]]] | None = None,
    ) -> None:
        super().__init__(text)
        self.__dict__.update(dict.fromkeys(OutOfMemoryError.__annotations__), **(figures or {}))
        if holders is not None:
            # The first read of the attribute calls it: to name native frames can take a second.
            del self.holders
            self.__dict__["_holders"] = holders

    # Type checkers would accept any attribute.
    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            if name != "holders" or "_holders" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.holders = self.__dict__["_holders"]()
            self.__dict__.pop("_holders", None)
            return self.holders

    def __reduce__(self) -> tuple[Any, ...]:
        _ = self.holders
        return type(self), (self.args[0], dict(self.__dict__))
