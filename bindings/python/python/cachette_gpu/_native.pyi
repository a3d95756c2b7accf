"""The native half of the package: types for checkers."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, final

__all__ = [
    "Allocation",
    "Allocator",
    "Growable",
    "Pinned",
    "PinnedAllocation",
    "Pool",
    "Resident",
    "Sanitizer",
    "Stream",
    "VERSION",
    "View",
    "component",
    "cupy",
    "default_stream",
    "devices",
    "get_memory_metadata",
    "normalise_config",
    "onnxruntime",
    "plugin",
    "run_program",
    "set_memory_metadata",
    "why_unusable",
]

VERSION: str

class _MissingFeature(TypedDict):
    feature: str
    reason: str

class _DeviceFacts(TypedDict):
    device: str
    reason: str | None
    name: str | None
    architecture: str | None
    total_memory: int | None
    free_memory: int | None
    missing: list[_MissingFeature]

class _BackendFacts(TypedDict):
    backend: str
    reason: str | None
    vendor: str | None
    version: str | None
    library: str | None
    emulated: bool
    devices: list[_DeviceFacts]

def devices() -> list[_BackendFacts]:
    """Every backend, in order of preference, with its devices or the reason why it has none."""

def why_unusable(backend: str) -> str | None:
    """Why no device of a backend can be used; `None` if one can."""

def normalise_config(text: str | None = None) -> str:
    """Parses a configuration, by default the environment's, and returns its shortest form."""

def run_program(arguments: Sequence[str]) -> int:
    """Runs the program `cachette` with these arguments, of which the first is its name; returns the exit status."""

def set_memory_metadata(text: str) -> None:
    """Sets the metadata of this thread's events."""

def get_memory_metadata() -> str:
    """The metadata of this thread's events."""

@final
class Stream:
    """A stream of a device; freed memory can be reused in the same stream at once.

    The stream is not destroyed with this object, but with the allocator and the last memory of it.
    """

    @property
    def handle(self) -> int:
        """The driver's handle, as a number."""
    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of the protocol, which is 0, and the driver's handle."""
    def synchronize(self) -> None:
        """Waits for the work that is queued in the stream."""

@final
class Allocation:
    """Device memory; freed by `free()`, at the end of a `with` block, or with the object."""

    @property
    def address(self) -> int:
        """The address of the first byte; 0 for an allocation of 0 bytes."""
    @property
    def bytes(self) -> int:
        """The usable size: the requested size, rounded up."""
    @property
    def requested(self) -> int:
        """The requested size in bytes."""
    @property
    def is_freed(self) -> bool:
        """Whether it was freed."""
    def record_stream(self, stream: Stream | int) -> None:
        """Records that `stream` uses the memory too."""
    def view(self, dtype: str, shape: Sequence[int]) -> View:
        """The memory with a type, such as `"float32"`, and a shape, for other libraries."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule with the memory as `uint8`, for `from_dlpack` of another library.

        `stream` is the handle of the consumer's stream, which waits for the stream of the memory. The memory is freed
        behind the work that the consumer's stream has by then, so that stream must stay alive as long as the allocator.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and the number of the device, in the numbers of DLPack."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3 as `uint8`; host memory has none."""
    def data_ptr(self) -> int:
        """The address of the first byte."""
    def free(self) -> None:
        """Frees the memory; it goes back when no view and no consumer uses it. A second call does nothing."""
    def __enter__(self) -> Allocation: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class View:
    """Memory with a type and a shape; other libraries take it by DLPack or by the CUDA array interface."""

    @property
    def dtype(self) -> str:
        """The name of the type of its elements."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule with the memory, for `from_dlpack` of another library.

        `stream` is the handle of the consumer's stream, which waits for the stream of the memory. The memory is freed
        behind the work that the consumer's stream has by then, so that stream must stay alive as long as the allocator.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and the number of the device, in the numbers of DLPack."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3; host memory has none."""
    def data_ptr(self) -> int:
        """The address of the first element."""

@final
class Pinned:
    """The pinned host memory of an allocator: `Allocator.pinned()`."""

    def allocate(self, size: int) -> PinnedAllocation:
        """Allocates `size` bytes, rounded up to 512 bytes, or above 1 MiB to 4 KiB."""
    def stats(self) -> dict[str, int]:
        """The statistics, with the keys of `torch.cuda.host_memory_stats()`."""
    def empty_cache(self) -> int:
        """Releases every free block to the driver, which waits for the device; returns the number of bytes."""
    def reset_peak_stats(self) -> None:
        """Resets every peak to the current value."""
    def reset_accumulated_stats(self) -> None:
        """Resets every sum and count to zero."""

@final
class PinnedAllocation:
    """Pinned host memory; freed by `free()`, at the end of a `with` block, or with the object."""

    @property
    def address(self) -> int:
        """The address of the first byte, as the host sees it; 0 for an allocation of 0 bytes."""
    @property
    def device_address(self) -> int:
        """The address of the first byte, as the device sees it; 0 for an allocation of 0 bytes."""
    @property
    def bytes(self) -> int:
        """The usable size: the requested size, rounded up to 512 bytes, or above 1 MiB to 4 KiB."""
    @property
    def requested(self) -> int:
        """The requested size in bytes."""
    @property
    def is_freed(self) -> bool:
        """Whether it was freed."""
    def view(self) -> memoryview:
        """The requested bytes; read and write them only while the device does not."""
    def record_stream(self, stream: Stream | int) -> None:
        """Records that work in `stream` uses the memory."""
    def free(self) -> None:
        """Frees the memory; a second call does nothing."""
    def __enter__(self) -> PinnedAllocation: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class component:
    """`with component("kv_cache"):` names the memory that libraries such as PyTorch request on this thread.

    Statistics, metrics, errors and snapshots have the bytes of each name. The work of other threads, such as
    autograd's, keeps the name of its library.
    """

    def __new__(cls, name: str) -> component: ...
    def __enter__(self) -> component: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Pool:
    """A private set of segments; `with pool:` routes this thread's requests to it."""

    @property
    def id(self) -> tuple[int, int]:
        """The pool's identifier: two numbers."""
    def allocate(self, size: int, stream: Stream | int | None = None) -> Allocation:
        """Allocates `size` bytes from the pool for work in `stream`."""
    def allocate_growable(self, size: int, stream: Stream | int | None = None) -> Growable:
        """Reserves addresses for up to `size` bytes, without memory. The memory sleeps and wakes with the pool."""
    def make_resident(self) -> Resident:
        """Wakes the pool if it sleeps, and keeps it on the device until the guard is released."""
    def stats(self) -> dict[str, int]:
        """The statistics of the pool: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`."""
    def empty_cache(self) -> int:
        """Releases every unused segment of the pool, and returns the number of bytes."""
    def sleep(self, keep: bool = True, progress: Callable[[int, int], object] | None = None) -> dict[str, int]:
        """Releases all memory of the pool to the device, and keeps every address: `released`, `saved`."""
    def wake(self, progress: Callable[[int, int], object] | None = None) -> int:
        """Allocates the memory again at the same addresses, with the saved contents. Returns the number of bytes."""
    def read_contents(self, address: int, size: int) -> bytearray | None:
        """Copies contents that the sleeping pool keeps, from `address` on; `None` if they are not kept."""
    def spill_contents(self, folder: str | os.PathLike[str]) -> int:
        """Moves the contents that the sleeping pool keeps to a file in `folder`; the bytes of freed host memory."""
    def save_addresses(self, path: str | os.PathLike[str]) -> None:
        """Writes the addresses of the pool's memory to a file, for `Allocator.restore_addresses` in another process."""
    def restore_segments(self, segments: Sequence[tuple[int, int]], stream: Stream | int | None = None) -> None:
        """Adds free memory at exactly these addresses: each segment as its address and its bytes."""
    def route_all(self) -> None:
        """Routes the requests of every thread to the pool for the rest of its life, unless they enter another pool."""
    @property
    def is_asleep(self) -> bool:
        """Whether the pool is asleep."""
    def release(self) -> None:
        """Stops using the pool. Memory that is allocated stays valid; a second call does nothing."""
    def __enter__(self) -> Pool: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Resident:
    """A guard: its pool is awake and is not evicted until `release()`, the end of a `with` block, or the object's end."""

    def release(self) -> None:
        """Ends the guard. Work that was queued until now still finds its memory. A second call does nothing."""
    def __enter__(self) -> Resident: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Growable:
    """Addresses whose memory the program adds and removes, in order of a stream."""

    @property
    def address(self) -> int:
        """The address of the first byte."""
    @property
    def bytes(self) -> int:
        """The bytes of the addresses: those requested, in whole pages."""
    @property
    def page(self) -> int:
        """The bytes of a page: memory is added and removed in whole pages."""
    @property
    def committed(self) -> int:
        """The committed bytes."""
    def commit(self, start: int, end: int) -> None:
        """Puts memory behind the bytes from `start` to `end`, which have none. Their contents are undefined."""
    def decommit(self, start: int, end: int) -> None:
        """Takes the memory behind committed bytes away, after the work that the stream has queued so far."""
    def record_stream(self, stream: Stream | int) -> None:
        """Records that `stream` also uses the memory that is committed now."""
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule with all addresses as `uint8`; only committed bytes may be used."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and the number of the device, in the numbers of DLPack."""
    def free(self) -> None:
        """Gives the memory up; a second call does nothing. It ends with its last consumer."""
    def __enter__(self) -> Growable: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Allocator:
    """A caching allocator for one device, such as `"cuda:0"`, `"hip:1"` or `"host"`."""

    def __new__(cls, device: str = "host", config: str | None = None) -> Allocator: ...
    @staticmethod
    def shared(device: int = 0) -> Allocator:
        """The allocator of a device that PyTorch, CuPy and other libraries of this process share."""
    @property
    def device(self) -> str:
        """The device, as it was named."""
    @property
    def device_name(self) -> str:
        """The name of the device."""
    def allocate(self, size: int, stream: Stream | int | None = None) -> Allocation:
        """Allocates `size` bytes for work in `stream`: a `Stream`, the driver's handle, or the default stream.

        An `int` is the handle of a live stream of this device, such as `torch.cuda.Stream.cuda_stream`, and no index. The
        stream must stay alive until the allocator and the memory are gone.
        """
    def create_stream(self) -> Stream:
        """Creates a stream of the device. One that was dropped is returned again, once it is idle and its memory is free."""
    def allocate_growable(self, size: int, stream: Stream | int | None = None) -> Growable:
        """Reserves addresses for up to `size` bytes, without memory. They may be more than the device has."""
    def create_pool(
        self,
        source: str | None = None,
        *,
        no_split: bool = False,
        use_on_oom: bool = False,
        tag: str = "",
        priority: int | None = None,
        registered: bool = False,
        reload: Callable[[tuple[int, int]], object] | None = None,
        before_sleep: Callable[[tuple[int, int]], object] | None = None,
    ) -> Pool:
        """Creates a pool: a private set of segments.

        With a `priority`, requests may evict the pool before they fail, the lowest priority first; `make_resident`
        keeps it. `reload(pool)` writes contents again that an eviction dropped; without it they are kept. With
        `registered`, the memory behind an address never changes. `before_sleep(pool)` may refuse by an exception.
        """
    def open_pool(self, id: tuple[int, int]) -> Pool:
        """Adds a user to a pool, by its identifier."""
    def memory_holders(self) -> dict[str, Any]:
        """Who holds memory of the device: `by_label`, `by_pool`, `cached` and `outside`, in bytes."""
    def restore_addresses(
        self, path: str | os.PathLike[str], stream: Stream | int | None = None
    ) -> tuple[Pool, list[Allocation]]:
        """Creates a pool with memory at the addresses of a file, and the blocks that were allocated."""
    def evict(self, size: int) -> int:
        """Evicts pools without guards until they have released `size` bytes, or none is left; the released bytes."""
    @property
    def evictable_bytes(self) -> int:
        """The bytes of evictable pools that are awake and have no guard."""
    def is_stable(self, address: int) -> bool:
        """Whether the memory behind an address never changes while it is allocated or cached."""
    def memory_stats(self) -> dict[str, int]:
        """The statistics, with PyTorch's keys, such as `"allocated_bytes.all.current"`."""
    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """The statistics, in dictionaries of dictionaries with PyTorch's keys."""
    def memory_summary(self) -> str:
        """The statistics as a table."""
    @property
    def allocated_bytes(self) -> int:
        """Bytes that callers hold, rounded up."""
    @property
    def reserved_bytes(self) -> int:
        """Bytes reserved from the device."""
    def memory_info(self) -> tuple[int, int]:
        """The device's free and total memory, in bytes."""
    def reset_peak_memory_stats(self) -> None:
        """Resets every peak to the current value."""
    def reset_accumulated_memory_stats(self) -> None:
        """Resets every sum and count to zero."""
    def empty_cache(self) -> int:
        """Releases unused memory to the device, and returns the number of bytes."""
    def set_memory_fraction(self, fraction: float) -> None:
        """Limits the allocator to a fraction of the device's memory; 1 removes the limit."""
    def get_memory_fraction(self) -> float:
        """The limit as a fraction of the device's memory; 1 without a limit."""
    @property
    def config(self) -> str:
        """The current configuration: a text with the settings that differ from the default."""
    def set_config(self, config: str) -> None:
        """Replaces the configuration."""
    def on_out_of_memory(self, observer: Callable[[dict[str, Any]], object]) -> None:
        """Registers a callback for out-of-memory errors; it gets a dictionary of the figures.

        An exception in it goes to `sys.unraisablehook`; an interrupt or exit is raised by the failed call. The
        allocator keeps the callback, and the garbage collector does not see that. So a callback that refers to the
        allocator, or to its memory, keeps both for the rest of the process; let it refer to them by `weakref`.
        """

    def sleep(self, tag: str, *, keep: bool = True) -> dict[str, int]:
        """Puts every pool with this tag to sleep: `released`, `saved`."""
    def wake(self, tag: str) -> int:
        """Wakes every pool with this tag; returns the bytes of their memory."""
    def release_contents(self) -> int:
        """Frees the host memory of pools that are awake again; returns its bytes."""
    def pinned(self) -> Pinned:
        """Pinned host memory, which the device copies from and to asynchronously."""
    def metrics(self, labels: dict[str, str] | None = None) -> str:
        """The statistics in Prometheus' text format, with `labels` besides the device."""
    def record_memory_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 100_000,
        clear_history: bool = False,
        skip_actions: list[str] | None = None,
    ) -> None:
        """Starts to record a history, with the parameters of `torch.cuda.memory._record_memory_history`."""
    def is_history_enabled(self) -> bool:
        """Whether a history is recorded."""
    def snapshot(self, include_traces: bool = True) -> dict[str, Any]:
        """A snapshot, with PyTorch's keys."""
    def dump_snapshot(self, path: str | os.PathLike[str]) -> None:
        """Writes a snapshot to a file that ends in `.pickle`, for PyTorch's memory viewer, or in `.json`."""
    def allocation_traceback(self, address: int) -> list[dict[str, Any]] | None:
        """The stack of the allocation at `address`; `None` if the history has none."""

def default_stream(device: int) -> int:
    """The number of the default stream of a device, for `Sanitizer`."""

@final
class Sanitizer:
    """A sanitizer of memory that is reused too early; streams and events are numbers."""

    def __new__(cls, reads_before_writes: bool, libraries: list[str]) -> Sanitizer: ...
    def start(self) -> None:
        """Receives the requests and frees of the shared allocators from now on, in place of any other."""
    def stop(self) -> None:
        """Receives nothing more."""
    def text(self, text: str) -> int:
        """The number of a text, such as the name of an operator."""
    def enter(self) -> None:
        """An operator begins on this thread: what it does has the place of its caller."""
    @staticmethod
    def leave() -> None:
        """The operator has ended."""
    def uses(self, stream: int, reads: list[int], writes: list[int], by: int) -> tuple[int, list[int]]:
        """Reports the uses of an operator; the number of findings, and the addresses without a description."""
    def describe(self, address: int, text: str) -> None:
        """Describes live memory, such as by the shape of its tensor."""
    def allocate(self, stream: int, address: int, bytes: int) -> None:
        """Begins a life of memory; the shared allocators report theirs."""
    def free(self, address: int) -> None:
        """Ends a life of memory."""
    def forget(self, address: int) -> None:
        """Ends a life of memory that is not reused before all its uses have ended."""
    def record_stream(self, address: int, stream: int) -> None:
        """Records that a stream uses the memory."""
    def host_uses(self, address: int, write: bool) -> int:
        """Reports an access of the host to pinned memory; the number of findings."""
    def ignore_stream(self, stream: int) -> None:
        """Excludes a stream that was made outside."""
    def record(self, event: int, stream: int) -> None:
        """An event was recorded in a stream."""
    def stream_wait(self, stream: int, event: int) -> None:
        """A stream waits for an event."""
    def host_wait(self, event: int) -> None:
        """The host has waited for an event, or found it done."""
    def synchronize(self, stream: int) -> None:
        """The host has waited for a stream."""
    def synchronize_device(self) -> None:
        """The host has waited for all streams."""
    def destroy_event(self, event: int) -> None:
        """An event was destroyed."""
    def begin_capture(self, stream: int) -> None:
        """A capture begins on a stream."""
    def end_capture(self, stream: int) -> int:
        """A capture ends; the number of its graph."""
    def launch(self, graph: int, stream: int) -> None:
        """A graph is launched in a stream."""
    def destroy_graph(self, graph: int) -> None:
        """A graph was destroyed."""
    def count(self) -> int:
        """The number of distinct findings."""
    def texts(self, known: int) -> list[str]:
        """The findings after the first `known`, as texts."""
    def json(self) -> str:
        """All findings as JSON."""
    def unfollowed(self) -> list[tuple[str, int]]:
        """Counts of what was not followed, by name."""

class plugin:
    """The process-wide plug-in for PyTorch; a module."""

    @staticmethod
    def start(backend: str, config: str | None = None) -> None:
        """Starts the plug-in on `backend` (`"cuda"`, `"hip"` or `"host"`), once in a process."""
    @staticmethod
    def is_started() -> bool:
        """Whether the plug-in was started."""
    @staticmethod
    def backend() -> str | None:
        """The name of the backend; `None` before the start."""
    @staticmethod
    def config() -> str | None:
        """The current configuration; `None` before the start."""
    @staticmethod
    def update_config(text: str) -> None:
        """Applies a configuration text of PyTorch, on all current and future devices.

        Python warns of keys that Cachette has not.
        """
    @staticmethod
    def addresses() -> dict[str, int]:
        """The functions that PyTorch calls: their names as symbols of this library, and their addresses."""
    @staticmethod
    def memory_stats(device: int) -> dict[str, Any]:
        """The statistics in PyTorch's nested form; zeros before the first allocation."""
    @staticmethod
    def memory_summary(device: int) -> str:
        """The statistics as a table."""
    @staticmethod
    def reset_peaks(device: int) -> None:
        """Resets every peak to the current value."""
    @staticmethod
    def reset_totals(device: int) -> None:
        """Resets every sum and count to zero."""
    @staticmethod
    def empty_cache() -> int:
        """Releases unused memory of every device."""
    @staticmethod
    def memory_info(device: int) -> tuple[int, int]:
        """The device's free and total memory, in bytes."""
    @staticmethod
    def set_memory_fraction(fraction: float, device: int) -> None:
        """Limits the allocator to a fraction of the device's memory; 1 removes the limit."""
    @staticmethod
    def memory_fraction(device: int) -> float:
        """The limit as a fraction of the device's memory; 1 without a limit."""
    @staticmethod
    def on_out_of_memory(observer: Callable[[int, int, int, int], object]) -> None:
        """Registers `observer(device, bytes, total, free)` for out-of-memory errors, on any device."""
    @staticmethod
    def pool_check_live_allocations(device: int, pool: tuple[int, int], addresses: set[int]) -> bool:
        """Whether exactly `addresses` are allocated in a pool, in any order."""
    @staticmethod
    def record_history(
        enabled: str | None,
        context: str | None,
        stacks: str,
        max_entries: int,
        clear_history: bool,
        skip_actions: list[str],
    ) -> None:
        """Starts to record a history on all current and future devices."""
    @staticmethod
    def ask_torch(
        current_node: Callable[[], Any],
        gather: Callable[[bool, bool, bool], Any],
        symbolize: Callable[[list[Any]], Any],
    ) -> None:
        """Sets the functions of PyTorch that histories call; only the first call in a process has an effect."""
    @staticmethod
    def is_history_enabled() -> bool:
        """Whether a history is recorded."""
    @staticmethod
    def snapshot(
        device: int | None = None, pool: tuple[int, int] | None = None, traces: bool = True
    ) -> dict[str, Any]:
        """A snapshot of one device, of all, or of one pool, with PyTorch's keys."""
    @staticmethod
    def dump_snapshot(path: str | os.PathLike[str]) -> None:
        """Writes a snapshot of all devices to a file that ends in `.pickle` or `.json`."""
    @staticmethod
    def annotate_memory(address: int, text: str) -> None:
        """Records an event that adds metadata to the memory in use at `address`. Memory of others is ignored."""

    @staticmethod
    def allocation_traceback(address: int) -> list[dict[str, Any]] | None:
        """The stack of the allocation at `address`; `None` if the history has none."""
    @staticmethod
    def metrics(device: int, labels: dict[str, str]) -> str:
        """The statistics of a device in Prometheus' text format."""
    @staticmethod
    def last_out_of_memory() -> dict[str, Any] | None:
        """The last request that ran out of memory, on any device and thread."""
    @staticmethod
    def devices() -> list[int]:
        """The numbers of the devices that were used so far."""
    @staticmethod
    def sleep(tag: str, keep: bool) -> dict[str, int]:
        """Puts every pool with a tag to sleep, on every device."""
    @staticmethod
    def wake(tag: str) -> int:
        """Wakes every pool with a tag, on every device; returns the bytes of their memory."""
    @staticmethod
    def release_contents() -> int:
        """Frees the host memory of pools that are awake again, on every device."""

class cupy:
    """The functions that CuPy calls for memory; a module."""

    @staticmethod
    def connect(capsule: object) -> tuple[int, int]:
        """Connects to CuPy by its capsule `get_current_stream_ptr`; the addresses of `malloc` and `free`."""
    @staticmethod
    def malloc(size: int, device: int) -> int:
        """Allocates for CuPy's current stream."""
    @staticmethod
    def free(address: int, device: int) -> None:
        """Frees what `malloc` gave."""

    @final
    class CapturePool:
        """A pool for one capture: requests for streams that take part in it are served by the pool."""

        def __new__(cls, device: int, stream: int) -> cupy.CapturePool: ...
        def end(self) -> None:
            """Ends the route; the pool lives on for the graph."""
        def stats(self) -> dict[str, int]:
            """The statistics: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`."""

class onnxruntime:
    """The functions that ONNX Runtime calls for memory; a module."""

    @staticmethod
    def addresses(device: int) -> tuple[int, int, int]:
        """The addresses of the functions of a device: allocate, free, empty the cache."""
    @staticmethod
    def empty_cache(device: int) -> int:
        """Releases the unused memory of a device; returns the number of bytes."""
    @staticmethod
    def last_error(device: int) -> str | None:
        """The text of the last failure on a device; `None` if there was none."""
