"""The exceptions of the package."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Something that Cachette could not do; the text says what to do about it."""


class ConfigError(Error, ValueError):
    """A configuration that cannot be read; the text says where and what is allowed."""


class HistoryError(Error, ValueError, RuntimeError):
    """A history that cannot be recorded as it was asked for; the text says what is allowed."""


class OutOfMemoryError(Error, MemoryError):
    """A request that failed for want of memory, with the figures of that moment in bytes.

    A figure is ``None`` where the driver would not say, or where it makes no sense: a request for more than any device
    has is refused before anything is looked at.
    """

    #: The number of the device.
    device: int | None
    #: The pool that was asked.
    pool: tuple[int, int] | None
    #: What the caller asked for.
    requested: int
    #: What was asked of the device for it.
    segment: int | None
    #: The device's memory.
    total: int | None
    #: What of it is free.
    free: int | None
    #: What of it is used, but not by this allocator.
    elsewhere: int | None
    #: The bound on what the allocator may hold.
    limit: int | None
    #: Memory that callers hold.
    allocated: int | None
    #: Memory held from the device.
    reserved: int | None
    #: Memory that callers freed and other streams still use.
    pending: int | None
    #: Memory held from the device that is not in use.
    unallocated: int | None
    #: The largest free piece of it.
    largest_free: int | None
    #: Free blocks that are each too small, together.
    fragmented: int | None
    #: What every pool holds, the default pool first.
    pools: list[dict[str, Any]]
    #: Where in the program most of what is allocated was, as far as a history knows; the largest first.
    holders: list[dict[str, Any]]
    #: What could be done; only what applies.
    hints: list[str]
    #: Everything in words.
    report: str

    def __init__(self, text: str, figures: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.__dict__.update(dict.fromkeys(OutOfMemoryError.__annotations__), **(figures or {}))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], dict(self.__dict__))
