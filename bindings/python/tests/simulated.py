"""The part of ``torch.cuda`` that programs with streams use, over tensors of the host.

Memory comes from a list for each stream. Streams and events report as PyTorch's trace does.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import types
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from cachette_gpu.torch import _sanitize


class Simulated:
    """PyTorch with a GPU that is simulated."""

    def __init__(self, torch: Any, native: Any) -> None:
        self.real, self.native = torch, native
        self.trace = _sanitize.callbacks(native, lambda: 0)
        self.free: dict[int, list[Any]] = defaultdict(list)
        self.addresses: set[int] = set()
        self.handles = itertools.count(0x100, 0x10)
        self.now = Stream(self, 0)
        self.cuda = types.SimpleNamespace(
            Stream=lambda: Stream(self), Event=lambda: Event(self), current_stream=lambda: self.now,
            stream=self.stream, synchronize=lambda: self.trace["device_synchronization"]())
        self.library, self.ops, self.Tensor = torch.library, torch.ops, torch.Tensor
        simulated = self

        class Tensor(torch.Tensor):  # type: ignore[misc]
            def record_stream(self, stream: Stream) -> None:
                simulated.native.record_stream(self.data_ptr(), stream.cuda_stream)

        self.kind = Tensor

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.now = self.now, stream
        yield
        self.now = before

    def empty(self, size: int, device: str) -> Any:
        free, bytes = self.free[self.now.cuda_stream], 4 * size
        # A split or a merge of blocks: any block that is large enough.
        found = next((it for it in reversed(free) if len(it) >= bytes), None)
        if found is None:
            found = ctypes.create_string_buffer(max(bytes, 40 << 20))
        else:
            free.remove(found)
        self.native.allocate(self.now.cuda_stream, ctypes.addressof(found), bytes)
        tensor = self.real.frombuffer(found, dtype=self.real.float32, count=size).as_subclass(self.kind)
        self.addresses.add(ctypes.addressof(found))
        weakref.finalize(tensor.untyped_storage(), self._end, found, free)
        return tensor

    def ones(self, size: int, device: str) -> Any:
        return self.empty(size, device).fill_(1)

    def full(self, size: tuple[int], value: float, device: str) -> Any:
        return self.empty(size[0], device).fill_(value)

    def is_device(self, tensor: Any) -> bool:
        return tensor.untyped_storage().data_ptr() in self.addresses

    def _end(self, buffer: Any, free: list[Any]) -> None:
        self.native.free(ctypes.addressof(buffer))
        free.append(buffer)


class Stream:
    """``torch.cuda.Stream``."""

    def __init__(self, simulated: Simulated, handle: int | None = None) -> None:
        self.simulated = simulated
        self.cuda_stream = next(simulated.handles) if handle is None else handle

    def wait_stream(self, other: Stream) -> None:
        event = Event(self.simulated)
        event.record(other)
        event.wait(self)

    def synchronize(self) -> None:
        self.simulated.trace["stream_synchronization"](self.cuda_stream)


class Event:
    """``torch.cuda.Event``."""

    def __init__(self, simulated: Simulated) -> None:
        self.simulated, self.cuda_event = simulated, next(simulated.handles)

    def record(self, stream: Stream | None = None) -> None:
        self.simulated.trace["event_record"](self.cuda_event, (stream or self.simulated.now).cuda_stream)

    def wait(self, stream: Stream | None = None) -> None:
        self.simulated.trace["event_wait"](self.cuda_event, (stream or self.simulated.now).cuda_stream)


def kinds(torch: Any, native: Any, program: Callable[[Any, Any], None]) -> list[str]:
    """The kinds of the findings in a program."""
    simulated, sanitizer = Simulated(torch, native), _sanitize.Sanitizer(native, False)
    uses = _sanitize.Uses(torch, sanitizer)
    uses.is_device = simulated.is_device  # type: ignore[method-assign]
    uses.stream = lambda device: simulated.now.cuda_stream  # type: ignore[method-assign]
    with _sanitize.patched([_sanitize.followed_threads(torch, uses)]), _sanitize.mode(torch, uses):
        program(simulated, simulated.cuda.Stream())
    return [finding["kind"] for finding in sanitizer.findings]
