"""The native half of the package: types for checkers."""

from collections.abc import Callable
from typing import Any, TypedDict

VERSION: str

class MissingFeature(TypedDict):
    feature: str
    reason: str

class DeviceFacts(TypedDict):
    device: str
    reason: str | None
    name: str | None
    architecture: str | None
    total_memory: int | None
    free_memory: int | None
    missing: list[MissingFeature]

class BackendFacts(TypedDict):
    backend: str
    reason: str | None
    vendor: str | None
    version: str | None
    library: str | None
    emulated: bool
    devices: list[DeviceFacts]

def devices() -> list[BackendFacts]:
    """Every backend, in order of preference, with its devices or the reason why it has none."""

def why_unusable(backend: str) -> str | None:
    """Why no device of a backend can be used; `None` where one can."""

def normalise_config(text: str | None = None) -> str:
    """Reads a configuration, the environment's by default, and writes it in its shortest form."""

class Stream:
    """A queue of work on a device; memory that is freed serves the same stream at once."""

    @property
    def handle(self) -> int:
        """The driver's own handle, as a number."""
    def synchronize(self) -> None:
        """Waits until everything queued in the stream so far has finished."""

class Allocation:
    """Bytes of device memory; they go back by `free()`, at the end of a `with` block, or with the object."""

    @property
    def address(self) -> int:
        """The address of the first byte; 0 for an allocation of no bytes."""
    @property
    def bytes(self) -> int:
        """Bytes that may be used: what was asked for, rounded up."""
    @property
    def requested(self) -> int:
        """Bytes that were asked for."""
    @property
    def is_freed(self) -> bool:
        """Whether it was freed."""
    def record_stream(self, stream: Stream | int) -> None:
        """Says that `stream` uses the memory too."""
    def free(self) -> None:
        """Gives the memory back; a second call does nothing."""
    def __enter__(self) -> Allocation: ...
    def __exit__(self, *exception: object) -> None: ...

class Pool:
    """Memory of its own for some requests; `with pool:` leads this thread's requests to it."""

    @property
    def id(self) -> tuple[int, int]:
        """The pool's name: two numbers."""
    def allocate(self, bytes: int, stream: Stream | int | None = None) -> Allocation:
        """Allocates `bytes` bytes from the pool for work in `stream`."""
    def stats(self) -> dict[str, int]:
        """What the pool holds: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`."""
    def empty_cache(self) -> int:
        """Gives every unused segment of the pool back, and says how many bytes that were."""
    def release(self) -> None:
        """Stops using the pool. Memory that is allocated stays valid; a second call does nothing."""
    def __enter__(self) -> Pool: ...
    def __exit__(self, *exception: object) -> None: ...

class Allocator:
    """A caching allocator for one device, such as `"cuda:0"`, `"hip:1"` or `"host"`."""

    def __init__(self, device: str = "host", config: str | None = None) -> None: ...
    @property
    def device(self) -> str:
        """The device, as it was named."""
    @property
    def device_name(self) -> str:
        """What the device calls itself."""
    def allocate(self, bytes: int, stream: Stream | int | None = None) -> Allocation:
        """Allocates `bytes` bytes for work in `stream`: a `Stream`, the driver's handle, or the default stream."""
    def create_stream(self) -> Stream:
        """Makes a stream of the device."""
    def create_pool(
        self, source: str | None = None, *, no_split: bool = False, use_on_oom: bool = False
    ) -> Pool:
        """Makes a pool: memory of its own for some requests."""
    def memory_stats(self) -> dict[str, int]:
        """The statistics, with PyTorch's keys, such as `"allocated_bytes.all.current"`."""
    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """The statistics, in dictionaries of dictionaries with PyTorch's keys."""
    def memory_summary(self) -> str:
        """The statistics as a table."""
    @property
    def allocated_bytes(self) -> int:
        """Bytes that callers hold now, as rounded."""
    @property
    def reserved_bytes(self) -> int:
        """Bytes held from the device now."""
    def memory_info(self) -> tuple[int, int]:
        """What the device has free and what it has in all, in bytes."""
    def reset_peak_memory_stats(self) -> None:
        """Makes every peak the present value."""
    def reset_accumulated_memory_stats(self) -> None:
        """Makes every sum and count zero."""
    def empty_cache(self) -> int:
        """Gives unused memory back to the device, and says how many bytes that were."""
    def set_memory_fraction(self, fraction: float) -> None:
        """Bounds what the allocator may hold to a fraction of the device's memory; 1 is no bound."""
    def get_memory_fraction(self) -> float:
        """The fraction of the device's memory that the allocator may hold; 1 without a bound."""
    @property
    def config(self) -> str:
        """The configuration as it is now: a text that names what differs from the default."""
    def set_config(self, config: str) -> None:
        """Behaves as `config` says from now on."""
    def on_out_of_memory(self, observer: Callable[[dict[str, Any]], object]) -> None:
        """Calls `observer` with a dictionary of the figures whenever a request ends in out-of-memory."""

class Slot:
    """Two functions that PyTorch's own pools can take memory from, with a cache behind them."""

    def __init__(self, source: str | None = None, config: str | None = None, no_split: bool = False) -> None: ...
    @property
    def alloc_address(self) -> int:
        """The address of the function that allocates."""
    @property
    def free_address(self) -> int:
        """The address of the function that frees."""
    def stats(self, device: int) -> dict[str, int]:
        """What is held on a device: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`."""

class plugin:
    """The process-wide plug-in for PyTorch; a module."""

    @staticmethod
    def start(backend: str, config: str | None = None) -> None:
        """Starts the plug-in on `backend` (`"cuda"`, `"hip"` or `"host"`), once in a process."""
    @staticmethod
    def is_started() -> bool:
        """Whether the plug-in was started."""
    @staticmethod
    def config() -> str | None:
        """The configuration that it was started with; `None` before that."""
    @staticmethod
    def addresses() -> dict[str, int]:
        """The functions that PyTorch calls: their names as symbols of this library, and their addresses."""
    @staticmethod
    def memory_stats(device: int) -> dict[str, Any]:
        """The statistics in PyTorch's nested form; zeros where nothing was allocated yet."""
    @staticmethod
    def memory_summary(device: int) -> str:
        """The statistics as a table."""
    @staticmethod
    def reset_peaks(device: int) -> None:
        """Makes every peak the present value."""
    @staticmethod
    def reset_totals(device: int) -> None:
        """Makes every sum and count zero."""
    @staticmethod
    def empty_cache() -> int:
        """Gives unused memory of every device back."""
    @staticmethod
    def memory_info(device: int) -> tuple[int, int]:
        """What the device has free and what it has in all, in bytes."""
    @staticmethod
    def set_memory_fraction(fraction: float, device: int) -> None:
        """Bounds what may be held to a fraction of the device's memory; 1 is no bound."""
    @staticmethod
    def memory_fraction(device: int) -> float:
        """The fraction of the device's memory that may be held; 1 without a bound."""
    @staticmethod
    def on_out_of_memory(observer: Callable[[int, int, int, int], object]) -> None:
        """Calls `observer(device, bytes, total, free)` whenever a request ends in out-of-memory, on any device."""
    @staticmethod
    def create_pool(device: int, source: str | None = None, no_split: bool = False) -> Pool:
        """Makes a pool of the device, whose segments come from the source called `source`."""
    @staticmethod
    def pool_holds_exactly(device: int, pool: tuple[int, int], addresses: set[int]) -> bool:
        """Whether exactly `addresses` are allocated in a pool, in whatever order."""
