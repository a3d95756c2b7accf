"""The sanitizer: fed as PyTorch's trace and dispatcher feed it, and by the plug-in's own functions."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import simulated
from conftest import HERE, Run

from cachette_gpu import _native
from cachette_gpu.torch import _sanitize

MAIN, SIDE = 0, 0x51DE


@pytest.fixture
def native() -> Any:
    return _native.Sanitizer(False, ["/_sanitize.py", "/torch/", "/weakref.py"])


def kinds(native: Any) -> list[str]:
    return [finding["kind"] for finding in json.loads(native.json())]


# What PyTorch's trace calls.


@pytest.fixture
def trace(native: Any) -> dict[str, Callable[..., None]]:
    return _sanitize.callbacks(native, lambda: 0)


def used_on_side(native: Any, trace: dict[str, Callable[..., None]], *, record: bool = False) -> None:
    """Memory of the main stream that the side stream reads, freed."""
    by = native.text("aten::mul")
    native.allocate(MAIN, 0x1000, 512)
    native.uses(MAIN, [], [0x1000], by)
    trace["event_record"](1, MAIN)
    trace["event_wait"](1, SIDE)
    native.uses(SIDE, [0x1000], [], by)
    if record:
        native.record_stream(0x1000, SIDE)


def free_and_reuse(native: Any) -> None:
    native.free(0x1000)
    native.allocate(MAIN, 0x1000, 512)


def test_a_missing_record_stream_is_found_with_its_lines(native: Any, trace: dict[str, Any]) -> None:
    used_on_side(native, trace)
    free_and_reuse(native)
    finding, = json.loads(native.json())
    assert finding["kind"] == "reused_too_early"
    functions = [step["lines"][0]["function"] for step in finding["steps"]]
    assert functions == ["used_on_side", "used_on_side", "free_and_reuse", "free_and_reuse"]
    assert finding["steps"][2]["lines"][0]["source"] == "native.free(0x1000)"
    text, = native.texts(0)
    assert "read on stream B (0x51de) by aten::mul" in text
    assert "nothing orders B before A. Call `x.record_stream(B)` before " in text
    assert "or `A.wait_stream(B)` before " in text


def test_record_stream_orders_the_reuse(native: Any, trace: dict[str, Any]) -> None:
    used_on_side(native, trace, record=True)
    free_and_reuse(native)
    assert kinds(native) == []


@pytest.mark.parametrize("wait", [
    lambda trace: (trace["event_record"](2, SIDE), trace["event_wait"](2, MAIN)),
    lambda trace: (trace["event_record"](2, SIDE), trace["event_synchronization"](2)),
    lambda trace: trace["stream_synchronization"](SIDE),
    lambda trace: trace["device_synchronization"](),
])
def test_every_wait_orders_the_reuse(native: Any, trace: dict[str, Any], wait: Callable[[Any], Any]) -> None:
    used_on_side(native, trace)
    wait(trace)
    free_and_reuse(native)
    assert kinds(native) == []


@pytest.mark.parametrize("wait", [
    lambda trace: trace["event_wait"](2, MAIN),
    lambda trace: (trace["event_record"](2, MAIN), trace["event_wait"](2, SIDE)),
    lambda trace: trace["stream_synchronization"](MAIN),
    lambda trace: (trace["event_record"](2, SIDE), trace["event_deletion"](2), trace["event_wait"](2, MAIN)),
])
def test_a_wait_that_does_not_help_is_found(native: Any, trace: dict[str, Any], wait: Callable[[Any], Any]) -> None:
    used_on_side(native, trace)
    wait(trace)
    free_and_reuse(native)
    assert kinds(native) == ["reused_too_early"]


def test_the_default_streams_of_two_devices_are_two(native: Any) -> None:
    device = 0
    trace = _sanitize.callbacks(native, lambda: device)
    native.allocate(_native.default_stream(0), 0x1000, 512)
    native.uses(_native.default_stream(1), [], [0x1000], 0)
    device = 0
    trace["stream_synchronization"](0)
    native.free(0x1000)
    native.allocate(_native.default_stream(0), 0x1000, 512)
    assert kinds(native) == ["reused_too_early"]


# The plug-in's own functions, on the host device.

PLUGIN = """
import ctypes, json
from cachette_gpu import _native
_native.plugin.start("host", "memory_limit:64M")
addresses = _native.plugin.addresses()
pointer = ctypes.c_void_p
alloc = ctypes.CFUNCTYPE(pointer, ctypes.c_size_t, ctypes.c_int, pointer)(addresses["cachette_torch_alloc"])
release = ctypes.CFUNCTYPE(None, pointer, ctypes.c_size_t, ctypes.c_int, pointer)(addresses["cachette_torch_free"])
record = ctypes.CFUNCTYPE(None, pointer, pointer)(addresses["cachette_torch_record_stream"])
allocator = _native.Allocator("host")
before = alloc(1 << 20, 0, None)
native = _native.Sanitizer(False, [])
native.start()
def kinds():
    return [finding["kind"] for finding in json.loads(native.json())]
def reuse():
    memory = alloc(1 << 20, 0, None)
    native.uses(0, [], [memory], 0)
    native.uses(0x51de, [memory], [], 0)
    return memory
"""


def test_the_allocator_reports_its_requests_and_frees(run: Run) -> None:
    done = run(PLUGIN + """
memory = reuse()
release(memory, 1 << 20, 0, None)
assert alloc(1 << 20, 0, None) == memory
print(kinds())
""")
    assert done.stdout.split() == ["['reused_too_early']"]


def test_the_memory_from_before_is_known(run: Run) -> None:
    done = run(PLUGIN + """
native.uses(0x51de, [before], [], 0)
release(before, 1 << 20, 0, None)
alloc(1 << 20, 0, None)
print(kinds(), dict(native.unfollowed())["uses of memory that Cachette did not allocate"])
""")
    assert done.stdout.strip() == "['reused_too_early'] 0"


def test_after_the_end_nothing_is_reported(run: Run) -> None:
    done = run(PLUGIN + """
memory = reuse()
native.stop()
release(memory, 1 << 20, 0, None)
alloc(1 << 20, 0, None)
print(kinds())
""")
    assert done.stdout.strip() == "[]"


def test_a_finding_is_a_mark_in_the_history(run: Run) -> None:
    done = run(PLUGIN + """
_native.plugin.record_history("all", "all", "python", 1000, False, [])
memory = reuse()
release(memory, 1 << 20, 0, None)
alloc(1 << 20, 0, None)
print([it["name"] for it in _native.plugin.snapshot()["external_annotations"]])
""")
    assert done.stdout.count("sanitizer: memory was reused while another stream could still use it") == 2


def test_it_needs_cachette(run: Run) -> None:
    done = run("import cachette_gpu.torch\nwith cachette_gpu.torch.sanitize(): pass", torch="good", fails=True)
    assert "call cachette_gpu.torch.enable() first" in done.stderr


@pytest.mark.parametrize("option", ["", "--cachette-sanitize"])
def test_pytest_fails_the_test_with_a_finding(run: Run, tmp_path: Path, option: str) -> None:
    (tmp_path / "test_two.py").write_text("def test_bad(): pass\ndef test_good(): pass\n")
    done = run(f"""
import contextlib, sys, types
import cachette_gpu.torch, pytest
found = iter([1, 0])
@contextlib.contextmanager
def sanitize():
    yield types.SimpleNamespace(count=next(found), text=lambda: "memory was reused")
cachette_gpu.torch.sanitize, cachette_gpu.torch.is_enabled = sanitize, lambda: True
# Where the package is installed, the plug-in is loaded by its entry point.
pytest.main(["-p", "no:cachette", "-p", "cachette_gpu._pytest", "-p", "no:cacheprovider", "-rf",
             *{option.split()!r}, {str(tmp_path)!r}])
""")
    failed = "1 failed, 1 passed" if option else "2 passed"
    assert failed in done.stdout
    assert ("memory was reused" in done.stdout) == bool(option)


def test_a_block_leaves_pytorch_as_it_was(run: Run) -> None:
    pytest.importorskip("torch")
    done = run("""
import os, threading, torch
import cachette_gpu.torch
from cachette_gpu.torch import _enable
_enable.is_enabled = lambda: True
_enable.usable_torch = lambda: torch
from cachette_gpu import _native
_native.plugin.start("host", "")
def functions():
    return [vars(owner).get(name) for owner, name in (
        (torch.cuda.Event, "query"), (torch.cuda.Stream, "query"), (torch.cuda.CUDAGraph, "replay"),
        (torch.cuda.CUDAGraph, "capture_end"), (torch.cuda.ExternalStream, "__new__"), (torch.Tensor, "numpy"),
        (threading.Thread, "start"))]
before = functions()
for _ in range(2):
    with cachette_gpu.torch.sanitize() as sanitizer:
        assert functions() != before
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch._C._len_torch_dispatch_stack()))
        thread.start()
        thread.join()
        child = os.fork()
        if child == 0:
            os._exit(0 if float(torch.ones(3).sum()) == 3 and not sanitizer._follows else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.ones(3).numpy().sum() == 3
    assert seen == [1] and functions() == before
    print(sanitizer.count, sanitizer.text())
""")
    assert "0 cachette sanitizer: not followed:" in done.stdout
    assert "1 forked children" in done.stdout


def test_the_trace_of_pytorch_reaches_the_sanitizer(run: Run) -> None:
    pytest.importorskip("torch")
    done = run("""
import torch
from torch.cuda import _gpu_trace as trace
import cachette_gpu.torch
from cachette_gpu.torch import _enable
_enable.is_enabled = lambda: True
_enable.usable_torch = lambda: torch
from cachette_gpu import _native
_native.plugin.start("host", "")
MAIN, SIDE = 0x11, 0x51de
for waits in (False, True):
    with cachette_gpu.torch.sanitize() as sanitizer:
        native = sanitizer._native
        native.allocate(MAIN, 0x1000, 512)
        native.uses(SIDE, [0x1000], [], 0)
        trace.EventRecordCallbacks.fire_callbacks(7, SIDE)
        if waits:
            trace.EventWaitCallbacks.fire_callbacks(7, MAIN)
        native.free(0x1000)
        native.allocate(MAIN, 0x1000, 512)
    print(sanitizer.count)
""")
    assert done.stdout.split() == ["1", "0"]


# PyTorch's dispatcher, with tensors of the host in the place of the GPU's.


class Bed:
    """Two streams, and memory of 4 KiB that the next request of its size gets again."""

    def __init__(self, torch: Any, native: Any, **options: Any) -> None:
        self.torch, self.native, self.now = torch, native, MAIN
        self.sanitizer = _sanitize.Sanitizer(native, **{"raise_on_finding": False, **options})
        self.free: list[Any] = [ctypes.create_string_buffer(4096) for _ in range(4)]
        self.known: set[int] = set()
        uses = _sanitize.Uses(torch, self.sanitizer)
        uses.is_device = lambda tensor: tensor.data_ptr() in self.known  # type: ignore[method-assign]
        uses.stream = lambda device: self.now  # type: ignore[method-assign]
        self.mode = _sanitize.mode(torch, uses)
        self.trace = _sanitize.callbacks(native, lambda: 0)

    def empty(self) -> Any:
        buffer = self.free.pop()
        address = ctypes.addressof(buffer)
        self.native.allocate(self.now, address, 4096)
        tensor = self.torch.frombuffer(buffer, dtype=self.torch.float32)
        self.known.add(address)
        weakref.finalize(tensor.untyped_storage(), self._end, buffer)
        return tensor

    def _end(self, buffer: Any) -> None:
        self.native.free(ctypes.addressof(buffer))
        self.free.append(buffer)


@pytest.fixture
def bed(native: Any) -> Bed:
    torch = pytest.importorskip("torch")
    return Bed(torch, native)


def test_operators_report_reads_and_writes(bed: Bed) -> None:
    with bed.mode:
        x = bed.empty()
        x.fill_(1)
        bed.trace["event_record"](1, MAIN)
        bed.trace["event_wait"](1, SIDE)
        bed.now = SIDE
        total = x.sum()
        bed.now = MAIN
        del x
        y = bed.empty()
        y.fill_(2)
    finding, = bed.sanitizer.findings
    assert finding["description"] == "float32 (1024,)"
    assert "read on stream B (0x51de) by aten::sum" in [step["what"] for step in finding["steps"]]
    here = "test_operators_report_reads_and_writes"
    assert all(here in [line["function"] for line in step["lines"]] for step in finding["steps"])
    assert float(total) == 1024


def test_views_and_shapes_are_no_uses(bed: Bed) -> None:
    with bed.mode:
        x = bed.empty()
        x.fill_(1)
        bed.now = SIDE
        x.view(2, 512)[0].detach().t
        bed.torch.empty_like(x)
        bed.torch.zeros_like(x)
        bed.now = MAIN
        del x
        bed.empty().fill_(2)
    assert bed.sanitizer.findings == []


def test_operators_in_a_backward_pass_are_seen(bed: Bed) -> None:
    with bed.mode:
        x = bed.empty()
        x.fill_(1)
        weight = bed.torch.ones(1024, requires_grad=True)
        loss = (weight * x).sum()
        bed.trace["event_record"](1, MAIN)
        bed.trace["event_wait"](1, SIDE)
        bed.now = SIDE
        loss.backward()
        bed.now = MAIN
        del x, loss
        bed.empty().fill_(2)
    assert "reused_too_early" in kinds(bed.native)


def test_findings_are_raised_on_request(native: Any) -> None:
    bed = Bed(pytest.importorskip("torch"), native, raise_on_finding=True)
    with bed.mode:
        x = bed.empty()
        bed.now = SIDE
        x.sum()
        bed.now = MAIN
        del x
        with pytest.raises(_sanitize.SanitizerError, match="memory was reused"):
            bed.empty().fill_(2)


def test_each_finding_is_printed_once(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    with bed.mode:
        for _ in range(3):
            x = bed.empty()
            bed.now = SIDE
            x.sum()
            bed.now = MAIN
            del x
            bed.empty().fill_(2)
            bed.trace["device_synchronization"]()
    assert capsys.readouterr().err.count("cachette sanitizer:") == 1
    assert bed.sanitizer.findings[0]["count"] == 3
    assert "(3 times)" in bed.sanitizer.text()


@pytest.mark.parametrize("waits", [False, True])
def test_the_host_waits_before_it_fills_a_pinned_buffer(bed: Bed, monkeypatch: pytest.MonkeyPatch,
                                                       waits: bool) -> None:
    monkeypatch.setattr(bed.torch.Tensor, "is_pinned", lambda self: True)
    buffer = bed.torch.ones(1024)
    with bed.mode:
        x = bed.empty()
        x.copy_(buffer, non_blocking=True)
        if waits:
            bed.trace["stream_synchronization"](MAIN)
        buffer.fill_(2)
    assert kinds(bed.native) == ([] if waits else ["host_access_too_early"])


@pytest.mark.parametrize("waits", [False, True])
def test_the_host_waits_before_it_reads_a_copy(bed: Bed, monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    monkeypatch.setattr(bed.torch.Tensor, "is_pinned", lambda self: True)
    buffer = bed.torch.zeros(1024)
    with bed.mode:
        x = bed.empty()
        x.fill_(1)
        buffer.copy_(x, non_blocking=True)
        if waits:
            bed.trace["stream_synchronization"](MAIN)
        buffer.sum()
    assert kinds(bed.native) == ([] if waits else ["host_access_too_early"])


def test_pinned_memory_of_another_tensor_is_new(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed.torch.Tensor, "is_pinned", lambda self: True)
    with bed.mode:
        x, memory = bed.empty(), ctypes.create_string_buffer(4096)
        x.copy_(bed.torch.frombuffer(memory, dtype=bed.torch.float32), non_blocking=True)
        # PyTorch reuses the memory after the copy, and nothing of that is seen.
        bed.torch.frombuffer(memory, dtype=bed.torch.float32).fill_(2)
    assert kinds(bed.native) == []


# The programs with planted bugs, which also run on a GPU, with streams that are simulated.


@functools.cache
def programs() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("planted_bugs", HERE / "gpu" / "test_planted_bugs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE / "gpu")
        spec.loader.exec_module(module)
    # The others need a driver, for graphs and pinned memory.
    real = ("graph", "pinned", "prefetched", "copy")
    tests = {name: test for name, test in vars(module).items() if hasattr(test, "program")}
    return {name: test.program for name, test in tests.items() if not any(word in name for word in real)}


@pytest.mark.parametrize("fixed", [False, True], ids=["bug", "correct"])
@pytest.mark.parametrize("name", programs())
def test_planted_bugs_are_found(native: Any, name: str, fixed: bool) -> None:
    torch, program = pytest.importorskip("torch"), programs()[name]
    found = simulated.kinds(torch, native, lambda fake, side: program(fake, side, fixed))
    assert set(found) == (set() if fixed else {"reused_too_early"}), "\n".join(native.texts(0))
