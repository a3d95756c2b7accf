"""Finds memory that is reused while another stream may still use it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import _native
from . import _enable
from ._error import EnableError

#: Operators that launch no kernel, although their schema does not say so.
_NO_KERNEL = {"aten::_unsafe_view", "aten::record_stream", "aten::is_pinned", "aten::resize_", "aten::set_"}
#: Parts of the names of operators that read only the shape of their arguments.
_FACTORIES = ("_like", "new_")

_lock = threading.Lock()
_active: Sanitizer | None = None


class SanitizerError(RuntimeError):
    """A finding, under ``raise_on_finding=True``."""


class Sanitizer:
    """The findings of a :func:`sanitize` block."""

    def __init__(self, native: Any, raise_on_finding: bool) -> None:
        self._native = native
        self._raises = raise_on_finding
        self._told = 0
        self._pinned: dict[int, Any] = {}
        #: False in a forked child, whose driver does not work.
        self._follows = True
        self._forks = 0
        self._callbacks: dict[str, Callable[..., None]] = {}

    @property
    def count(self) -> int:
        """The number of distinct findings so far."""
        return self._native.count()

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The distinct findings, in the order in which they were found."""
        return json.loads(self._native.json())

    def text(self) -> str:
        """The findings with their counts, and what was not followed."""
        return "\n\n".join([*self._native.texts(0), *self._unfollowed()])

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Writes the findings to a file, as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._native.json())

    def _unfollowed(self) -> list[str]:
        unfollowed = [*self._native.unfollowed(), ("forked children", self._forks)]
        counts = [f"  {count} {what}" for what, count in unfollowed if count]
        return ["\n".join(["cachette sanitizer: not followed:", *counts])] if counts else []

    def _tell(self, count: int) -> None:
        """Prints or raises the findings after those that were told before."""
        if count <= self._told:
            return
        with _lock:
            texts, self._told = self._native.texts(self._told), count
        if texts and self._raises:
            raise SanitizerError("\n\n".join(texts))
        for text in texts:
            print(text, file=sys.stderr, flush=True)


class Uses:
    """Reports the arguments and results of operators, with reads and writes from their schemas."""

    def __init__(self, torch: Any, sanitizer: Sanitizer) -> None:
        self._torch, self._sanitizer, self._native = torch, sanitizer, sanitizer._native
        self._plans: dict[Any, _Plan] = {}

    def is_device(self, tensor: Any) -> bool:
        """Whether a tensor is in the memory of a GPU."""
        return tensor.is_cuda

    def stream(self, device: int) -> int:
        """The current stream of a device."""
        return self._torch._C._cuda_getCurrentRawStream(device) or device and _native.default_stream(device)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls an operator and reports its uses."""
        # A forked child takes no lock that another thread may have held.
        if not self._sanitizer._follows:
            return func(*args, **kwargs)
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = _Plan(func._schema, self._native)
        if not plan.uses:
            return func(*args, **kwargs)
        reads, writes, hosts = [], [], []
        for write, tensor in plan.tensors(self._torch.Tensor, args, kwargs):
            if self.is_device(tensor):
                (writes if write else reads).append(tensor)
            elif tensor.device.type == "cpu":
                hosts.append((write, tensor))
        used = reads + writes
        device = used[0].device.index or 0 if used else None
        self._native.enter()
        try:
            count = self._host_uses(plan, hosts, args, kwargs, device) if hosts else 0
            if used:
                count = self._report(plan, reads, writes, device)
            # Before the operator, which may end the process.
            self._sanitizer._tell(count)
            result = func(*args, **kwargs)
            if plan.results:
                known = {_address(tensor) for tensor in used}
                results = _tensors(self._torch.Tensor, result)
                made = [it for it in results if self.is_device(it) and _address(it) not in known]
                if made:
                    count = self._report(plan, [], made, made[0].device.index or 0)
                elif used and plan.is_copy(args, kwargs):
                    for tensor in results:
                        self._asynchronous(plan, tensor, True, device)
        finally:
            self._native.leave()
        self._sanitizer._tell(count)
        return result

    def _report(self, plan: _Plan, reads: list[Any], writes: list[Any], device: int) -> int:
        count, bare = self._native.uses(self.stream(device), _addresses(reads), _addresses(writes), plan.name)
        for address in bare:
            tensor = next(it for it in reads + writes if _address(it) == address)
            self._native.describe(address, f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}")
        return count

    def _host_uses(self, plan: _Plan, hosts: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                   device: int | None) -> int:
        """Reports tensors of the host: as arguments of an asynchronous copy, or as accesses of the host."""
        if plan.is_copy(args, kwargs):
            if device is None:  # A copy to the device, whose result does not exist yet.
                target = kwargs.get("device")
                if target is None or self._torch.device(target).type == "cpu":
                    return self._accesses(hosts)
                device = self._torch.device(target).index
                device = self._torch.cuda.current_device() if device is None else device
            for write, tensor in hosts:
                self._asynchronous(plan, tensor, write, device)
            return self._native.count()
        return self._accesses(hosts)

    def host_reads(self, tensor: Any) -> None:
        """Reports that the host reads a tensor without an operator."""
        if self._sanitizer._pinned and not self.is_device(tensor):
            self._sanitizer._tell(self._accesses([(False, tensor)]))

    def _accesses(self, hosts: list[Any]) -> int:
        count = 0
        if self._sanitizer._pinned:
            for write, tensor in hosts:
                address = _address(tensor) and tensor.untyped_storage().data_ptr()
                if address in self._sanitizer._pinned:
                    count = self._native.host_uses(address, write)
        return count

    def _asynchronous(self, plan: _Plan, tensor: Any, write: bool, device: int) -> None:
        """A copy uses host memory after it returns, if that memory is pinned."""
        storage, pinned = tensor.untyped_storage(), self._sanitizer._pinned
        address = storage.data_ptr()
        if address not in pinned:
            if not tensor.is_pinned():
                return
            # The host allocator of PyTorch waits for copies before it reuses the memory.
            pinned[address] = weakref.finalize(storage, _forget, weakref.ref(self._sanitizer), address)
            pinned[address].atexit = False
            self._native.allocate(self.stream(device), address, storage.nbytes())
            self._native.describe(address, f"pinned {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}")
        addresses = ([], [address]) if write else ([address], [])
        self._native.uses(self.stream(device), *addresses, plan.name)


class _Plan:
    """What an operator does with its arguments, from its schema."""

    def __init__(self, schema: Any, native: Any) -> None:
        name = schema.name
        self.name = native.text(name)
        short = name.split("::")[-1]
        factory = short.startswith(_FACTORIES[1]) or short.endswith(_FACTORIES[0])
        aliases = [argument.alias_info for argument in schema.arguments]
        # A view reads nothing. A factory reads the shape alone.
        kinds = [None if alias is not None and not alias.is_write or alias is None and factory else alias is not None
                 for alias in aliases]
        arguments = list(enumerate(zip(schema.arguments, kinds)))
        self._arguments = [(index, argument.name, kind) for index, (argument, kind) in arguments
                           if kind is not None and "Tensor" in str(argument.type)]
        is_view = not self._arguments and all(it.alias_info is not None for it in schema.returns)
        self.uses = name not in _NO_KERNEL and not name.startswith("prim::") and not is_view
        #: Whether the results are new memory that the operator writes.
        self.results = not short.startswith(("empty", "new_empty")) and any(it.alias_info is None for it in
                                                                           schema.returns)
        self._copies = name in ("aten::copy_", "aten::_to_copy")
        self._non_blocking = next((index for index, it in enumerate(schema.arguments) if it.name == "non_blocking"), 0)

    def tensors(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[bool, Any]]:
        """The tensors among the arguments that are used, each with whether it is written."""
        found = []
        for index, name, write in self._arguments:
            value = args[index] if index < len(args) else kwargs.get(name)
            if isinstance(value, kind):
                found.append((write, value))
            elif isinstance(value, (list, tuple)):
                found.extend((write, it) for it in value if isinstance(it, kind))
        return found

    def is_copy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether this is a copy that may return before it has ended."""
        if not self._copies:
            return False
        at = self._non_blocking
        return bool(args[at] if at < len(args) else kwargs.get("non_blocking", False))


def _tensors(kind: type, value: Any) -> list[Any]:
    """The tensors of a result."""
    if isinstance(value, kind):
        return [value]
    return [it for part in value for it in _tensors(kind, part)] if isinstance(value, (list, tuple)) else []


def _address(tensor: Any) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # It has no memory, such as a fake tensor.
        return 0


def _addresses(tensors: list[Any]) -> list[int]:
    return [address for tensor in tensors if (address := _address(tensor))]


def _forget(sanitizer: weakref.ref[Sanitizer], address: int) -> None:
    found = sanitizer()
    if found is not None and found._pinned.pop(address, None) is not None:
        found._native.forget(address)


def mode(torch: Any, uses: Uses) -> Any:
    """A dispatch mode that reports the uses of operators on its thread."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return uses.run(func, args, kwargs or {})

    return Mode()


def callbacks(native: Any, current_device: Callable[[], int]) -> dict[str, Callable[..., None]]:
    """The functions that PyTorch's trace of GPU calls is to call, by the end of the name that registers them."""

    def of(stream: int) -> int:
        return stream or _native.default_stream(current_device())

    return {
        "event_deletion": lambda event: native.destroy_event(event),
        "event_record": lambda event, stream: native.record(event, of(stream)),
        "event_wait": lambda event, stream: native.stream_wait(of(stream), event),
        "event_synchronization": lambda event: native.host_wait(event),
        "stream_synchronization": lambda stream: native.synchronize(of(stream)),
        "device_synchronization": lambda: native.synchronize_device(),
    }


#: PyTorch cannot remove callbacks, so they are registered once and call the active sanitizer.
_registered = False


def _register(torch: Any) -> None:
    global _registered
    if _registered:
        return
    from torch.cuda import _gpu_trace as trace

    torch._C._activate_gpu_trace()
    for name in callbacks(None, int):
        def call(*arguments: int, name: str = name) -> None:
            active = _active
            if active is not None and active._follows:
                active._callbacks[name](*arguments)

        getattr(trace, f"register_callback_for_{name}")(call)
    os.register_at_fork(after_in_parent=_forked, after_in_child=_in_child)
    _registered = True


def _forked() -> None:
    if _active is not None:
        _active._forks += 1


def _in_child() -> None:
    if _active is not None:
        _active._follows = False


def _patches(torch: Any, native: Any, uses: Uses) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Functions of PyTorch that its trace does not report: class, name, and the function in its place."""

    def wrap(owner: Any, name: str, after: Callable[..., None], before: bool = False) -> tuple[Any, str, Any]:
        original = getattr(owner, name)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            if before:
                after(None, *args)
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
            after(result, *args)
            return result

        return owner, name, called

    def current() -> int:
        return uses.stream(torch.cuda.current_device())

    def polled_event(done: bool, event: Any) -> None:
        if done and event.cuda_event:
            native.host_wait(event.cuda_event)

    def polled_stream(done: bool, stream: Any) -> None:
        if done:
            native.synchronize(stream.cuda_stream or _native.default_stream(stream.device_index))

    def captured(_: Any, graph: Any) -> None:
        graph._cachette_graph = native.end_capture(current())
        weakref.finalize(graph, native.destroy_graph, graph._cachette_graph).atexit = False

    def replayed(_: Any, graph: Any) -> None:
        number = getattr(graph, "_cachette_graph", None)
        if number is not None:
            native.launch(number, current())

    yield wrap(torch.cuda.Event, "query", polled_event)
    yield wrap(torch.cuda.Stream, "query", polled_stream)
    yield wrap(torch.cuda.CUDAGraph, "capture_begin", lambda _, *args: native.begin_capture(current()))
    yield wrap(torch.cuda.CUDAGraph, "capture_end", captured, before=True)
    yield wrap(torch.cuda.CUDAGraph, "replay", replayed)
    yield wrap(torch.Tensor, "numpy", lambda _, tensor: uses.host_reads(tensor), before=True)
    yield wrap(torch.Tensor, "tolist", lambda _, tensor: uses.host_reads(tensor), before=True)
    external, name, create = wrap(torch.cuda.ExternalStream, "__new__",
                                  lambda stream, *args: native.ignore_stream(stream.cuda_stream))
    yield external, name, staticmethod(create)
    yield followed_threads(torch, uses)


def followed_threads(torch: Any, uses: Uses) -> tuple[Any, str, Callable[..., Any]]:
    """``Thread.start``, so that the operators of a new thread are seen: a dispatch mode belongs to one thread."""
    start = threading.Thread.start

    @functools.wraps(start)
    def started(thread: threading.Thread) -> None:
        run = thread.run

        def followed() -> None:
            with mode(torch, uses):
                run()

        thread.run = followed  # type: ignore[method-assign]
        start(thread)

    return threading.Thread, "start", started


@contextlib.contextmanager
def patched(patches: Iterable[tuple[Any, str, Callable[..., Any]]]) -> Iterator[None]:
    """Puts functions in the place of others in a block."""
    with contextlib.ExitStack() as stack:
        for owner, name, function in patches:
            own = vars(owner).get(name)
            setattr(owner, name, function)
            stack.callback(delattr, owner, name) if own is None else stack.callback(setattr, owner, name, own)
        yield


@contextlib.contextmanager
def sanitize(raise_on_finding: bool = False, *, reads_before_writes: bool = False) -> Iterator[Sanitizer]:
    """Finds memory that is reused while another stream may still use it, in the block and in threads it starts.

    Each distinct finding is printed to stderr once, or raised as :class:`SanitizerError` by the operator after it.
    ``reads_before_writes`` also finds tensors that are read before they are written. Cachette must be enabled.
    """
    global _active
    if not _enable.is_enabled():
        raise EnableError("the sanitizer sees the memory of Cachette alone; call cachette_gpu.torch.enable() first")
    torch = _enable.usable_torch()
    native = _native.Sanitizer(reads_before_writes, _libraries(torch))
    sanitizer = Sanitizer(native, raise_on_finding)
    sanitizer._callbacks = callbacks(native, torch.cuda.current_device)
    uses = Uses(torch, sanitizer)
    with _lock:
        if _active is not None:
            raise EnableError("a sanitizer is active already; use one at a time")
        _active = sanitizer
    try:
        _register(torch)
        # What was queued before is not known. It has ended after this.
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        native.start()
        with patched(_patches(torch, native, uses)), mode(torch, uses):
            yield sanitizer
        sanitizer._tell(native.count())
    finally:
        native.stop()
        _active = None


def sanitize_process() -> None:
    """Sanitizes the rest of the process, as ``CACHETTE_SANITIZE=1`` asks."""
    block = sanitize()
    sanitizer = block.__enter__()

    def end() -> None:
        block.__exit__(None, None, None)
        count = f"{sanitizer.count or 'no'} finding{'' if sanitizer.count == 1 else 's'}"
        print(f"cachette sanitizer: {count}", *sanitizer._unfollowed(), sep="\n", file=sys.stderr)

    atexit.register(end)


def _libraries(torch: Any) -> list[str]:
    """Parts of the names of files that are not the program's."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [here + os.sep, os.path.dirname(os.path.abspath(torch.__file__)) + os.sep, "<frozen", "/contextlib.py",
            "/threading.py"]
