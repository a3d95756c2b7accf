"""The native half of the package: types for checkers."""

import os
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

def set_memory_metadata(text: str) -> None:
    """Lets every event of this thread carry `text`, until it is set again; an empty one is none."""

def get_memory_metadata() -> str:
    """What this thread's events carry now."""

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

class Pinned:
    """The pinned host memory of an allocator: `Allocator.pinned()`."""

    def allocate(self, bytes: int) -> PinnedAllocation:
        """Allocates `bytes` bytes, rounded up to a power of two."""
    def stats(self) -> dict[str, int]:
        """The figures, with the keys of `torch.cuda.host_memory_stats()`."""
    def empty_cache(self) -> int:
        """Gives every free block back to the driver, which waits for the whole device; how many bytes that were."""
    def reset_peak_stats(self) -> None:
        """Makes every peak the present value."""
    def reset_accumulated_stats(self) -> None:
        """Makes every sum and count zero."""

class PinnedAllocation:
    """Pinned host memory; it goes back by `free()`, at the end of a `with` block, or with the object."""

    @property
    def address(self) -> int:
        """The address of the first byte, as the host sees it; 0 for an allocation of no bytes."""
    @property
    def device_address(self) -> int:
        """The address of the first byte, as the device sees it; 0 for an allocation of no bytes."""
    @property
    def bytes(self) -> int:
        """Bytes that may be used: what was asked for, rounded up to a power of two."""
    @property
    def requested(self) -> int:
        """Bytes that were asked for."""
    @property
    def is_freed(self) -> bool:
        """Whether it was freed."""
    def view(self) -> memoryview:
        """The bytes that were asked for, to be read and written while the device is not at them."""
    def record_stream(self, stream: Stream | int) -> None:
        """Says that work in `stream` uses the memory."""
    def free(self) -> None:
        """Gives the memory back; a second call does nothing."""
    def __enter__(self) -> PinnedAllocation: ...
    def __exit__(self, *exception: object) -> None: ...

class Pool:
    """A private set of segments; `with pool:` routes this thread's requests to it."""

    @property
    def id(self) -> tuple[int, int]:
        """The pool's name: two numbers."""
    def allocate(self, bytes: int, stream: Stream | int | None = None) -> Allocation:
        """Allocates `bytes` bytes from the pool for work in `stream`."""
    def stats(self) -> dict[str, int]:
        """What the pool holds: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`."""
    def empty_cache(self) -> int:
        """Gives every unused segment of the pool back, and says how many bytes that were."""
    def sleep(self, keep: bool = True, progress: Callable[[int, int], object] | None = None) -> dict[str, int]:
        """Gives all memory of the pool back to the device, and keeps every address: `released`, `saved`."""
    def wake(self, progress: Callable[[int, int], object] | None = None) -> int:
        """Gets memory again at the same addresses, with the bytes that were kept; how many bytes of memory."""
    @property
    def is_asleep(self) -> bool:
        """Whether the pool sleeps."""
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
        """Allocates `bytes` bytes for work in `stream`: a `Stream`, the driver's handle, or the default stream.

        An `int` is the handle of a live stream of this device, such as `torch.cuda.Stream.cuda_stream`, and no index. The
        stream must stay alive until the allocator and the memory are gone.
        """
    def create_stream(self) -> Stream:
        """Makes a stream of the device."""
    def create_pool(
        self, source: str | None = None, *, no_split: bool = False, use_on_oom: bool = False, tag: str = ""
    ) -> Pool:
        """Creates a pool: a private set of segments."""
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

    def sleep(self, tag: str, *, keep: bool = True) -> dict[str, int]:
        """Lets every pool with this tag sleep: `released`, `saved`."""
    def wake(self, tag: str) -> int:
        """Wakes every pool with this tag; the bytes of their memory."""
    def release_contents(self) -> int:
        """Gives host memory back that kept the contents of pools which are awake now; its bytes."""
    def pinned(self) -> Pinned:
        """Pinned host memory, which the device copies from and to asynchronously."""
    def metrics(self, labels: dict[str, str] = ...) -> str:
        """The figures in the text form that Prometheus reads, with `labels` beside the device."""
    def record_memory_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 100_000,
        clear_history: bool = False,
        skip_actions: list[str] = ...,
    ) -> None:
        """Records what happens to memory from now on; `torch.cuda.memory._record_memory_history` has the same words."""
    def is_history_enabled(self) -> bool:
        """Whether a history is recorded."""
    def snapshot(self, include_traces: bool = True) -> dict[str, Any]:
        """What the allocator holds and did, with PyTorch's keys."""
    def dump_snapshot(self, path: str | os.PathLike[str]) -> None:
        """Writes a snapshot to a file that ends in `.pickle`, for PyTorch's memory viewer, or in `.json`."""
    def allocation_traceback(self, address: int) -> list[dict[str, Any]] | None:
        """Where the allocation that begins at `address` was made; `None` if the history does not know."""

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
        """The configuration as it is now; `None` before the start."""
    @staticmethod
    def update_config(text: str) -> None:
        """Sets what a text of PyTorch says, on every device that is or will be used.

        Python warns of keys that Cachette has not.
        """
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
    def create_pool(device: int, source: str | None = None, no_split: bool = False, tag: str = "") -> Pool:
        """Makes a pool of the device, whose segments come from the source called `source`."""
    @staticmethod
    def pool_check_live_allocations(device: int, pool: tuple[int, int], addresses: set[int]) -> bool:
        """Whether exactly `addresses` are allocated in a pool, in whatever order."""
    @staticmethod
    def record_history(
        enabled: str | None,
        context: str | None,
        stacks: str,
        max_entries: int,
        clear_history: bool,
        skip_actions: list[str],
    ) -> None:
        """Records what happens to memory on every device that is or will be used."""
    @staticmethod
    def ask_torch(
        current_node: Callable[[], Any],
        gather: Callable[[bool, bool, bool], Any],
        symbolize: Callable[[list[Any]], Any],
    ) -> None:
        """Lets histories ask these functions of PyTorch; the first call in a process counts."""
    @staticmethod
    def is_history_enabled() -> bool:
        """Whether a history is recorded."""
    @staticmethod
    def snapshot(
        device: int | None = None, pool: tuple[int, int] | None = None, traces: bool = True
    ) -> dict[str, Any]:
        """What one device or all of them hold and did, or one pool alone, with PyTorch's keys."""
    @staticmethod
    def dump_snapshot(path: str | os.PathLike[str]) -> None:
        """Writes a snapshot of all devices to a file that ends in `.pickle` or `.json`."""
    @staticmethod
    def allocation_traceback(address: int) -> list[dict[str, Any]] | None:
        """Where the allocation that begins at `address` was made; `None` if the history does not know."""
    @staticmethod
    def metrics(device: int, labels: dict[str, str]) -> str:
        """The figures of a device in the text form that Prometheus reads."""
    @staticmethod
    def last_out_of_memory() -> dict[str, Any] | None:
        """The last request that failed for want of memory, on whichever device and thread."""
    @staticmethod
    def devices() -> list[int]:
        """The numbers of the devices that were used so far."""
    @staticmethod
    def sleep(tag: str, keep: bool) -> dict[str, int]:
        """Lets every pool with a tag sleep, on every device."""
    @staticmethod
    def wake(tag: str) -> int:
        """Wakes every pool with a tag, on every device; the bytes of their memory."""
    @staticmethod
    def release_contents() -> int:
        """Gives host memory back that kept the contents of pools which are awake now, on every device."""
