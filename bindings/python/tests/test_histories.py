"""What happened to memory and what is held: of an allocator, and of the plug-in through PyTorch's own functions."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

import cachette_gpu

#: The plug-in on the host device, behind a stand-in for PyTorch. `call` keeps the interpreter's lock, `free_call` gives
#: it up, as PyTorch does.
PRELUDE = """
import ctypes, json, pickle, sys
import torch, cachette_gpu, cachette_gpu.torch
from cachette_gpu import _native
start = _native.plugin.start
_native.plugin.start = lambda backend, config: start("host", config)
cachette_gpu.torch.enable("memory_limit:64M")
KINDS = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
addresses = _native.plugin.addresses()
call = ctypes.PYFUNCTYPE(*KINDS)(addresses["cachette_torch_alloc"])
free_call = ctypes.CFUNCTYPE(*KINDS)(addresses["cachette_torch_alloc"])
free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, *KINDS[1:])(addresses["cachette_torch_free"])
def allocate(bytes):
    return call(bytes, 0, None)
record = torch._C._cuda_record_memory_history
def events():
    return [it["action"] for it in torch._C._cuda_memorySnapshot(None)["device_traces"][0]]
"""


def allocated_here(allocator: cachette_gpu.Allocator) -> cachette_gpu.Allocation:
    return allocator.allocate(3 << 20)


def names(frames: list[dict[str, Any]] | None) -> list[str]:
    return [frame["name"] for frame in frames or []]


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host", "expandable_segments:False")


def test_h1_allocations_have_their_python_callers(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(stacks="python")
    memory = allocated_here(allocator)
    frames = allocator.allocation_traceback(memory.address)
    assert frames is not None
    assert names(frames)[:2] == ["allocated_here", "test_h1_allocations_have_their_python_callers"]
    assert frames[0]["filename"] == __file__
    assert frames[0]["line"] == allocated_here.__code__.co_firstlineno + 1
    assert allocator.allocation_traceback(1) is None


def test_h1_native_callers_come_before_those_in_python(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(stacks="all")
    held = allocated_here(allocator)
    found = names(allocator.allocation_traceback(held.address))
    assert "allocated_here" in found
    assert not [name for name in found if name.startswith(("cachette", "_native", "_PyEval"))]


def test_h1_the_level_says_who_has_a_stack(allocator: cachette_gpu.Allocator) -> None:
    here, own = "allocated_here", "test_h1_the_level_says_who_has_a_stack"
    for level, of_alloc, of_free in ((None, None, None), ("state", None, None), ("alloc", here, here),
                                     ("all", here, own)):
        allocator.record_memory_history(context=level, stacks="python", clear_history=True)
        memory = allocated_here(allocator)
        assert (allocator.allocation_traceback(memory.address) is not None) == (level is not None)
        memory.free()
        (trace,) = allocator.snapshot()["device_traces"]
        first = {event["action"]: (names(event["frames"]) or [None])[0] for event in trace}
        assert (first["alloc"], first["free_requested"]) == (of_alloc, of_free), level


def test_h1_a_free_while_an_exception_passes_leaves_the_exception(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(stacks="python")

    def hold() -> None:
        memory = allocator.allocate(512)
        raise KeyError(memory.bytes)

    with pytest.raises(KeyError, match="512"):
        hold()
    assert allocator.is_history_enabled()


def test_h1_threads_have_their_own_callers(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(stacks="python")
    held: list[cachette_gpu.Allocation] = []
    threads = [threading.Thread(target=lambda: held.extend(allocated_here(allocator) for _ in range(50)))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for memory in held:
        assert names(allocator.allocation_traceback(memory.address))[0] == "allocated_here"


def is_kept(code: weakref.ref[Any]) -> bool:
    """Whether code is still there after some turns of the interpreter, which drops it at one of the next."""
    for _ in range(10):
        gc.collect()
        if code() is None:
            return False
    return True


def test_h1_code_is_forgotten_when_the_last_history_stops(allocator: cachette_gpu.Allocator) -> None:
    def met() -> weakref.ref[Any]:
        """A function that is gone, and whose code a history has met."""
        names: dict[str, Any] = {"allocator": allocator, "other": other}
        exec("def made():\n    allocator.allocate(512)\n    other.allocate(512)", names)
        names["made"]()
        return weakref.ref(names["made"].__code__)

    other = cachette_gpu.Allocator("host", "")
    assert not is_kept(met())
    allocator.record_memory_history(stacks="python")
    other.record_memory_history(stacks="all")
    first, second = met(), met()
    assert is_kept(first) and is_kept(second)
    allocator.record_memory_history(None)
    assert is_kept(first), "the other history names it"
    other.record_memory_history(None)
    assert not is_kept(first) and not is_kept(second)


def test_h1_an_allocator_takes_its_history_with_it() -> None:
    allocator = cachette_gpu.Allocator("host", "")
    allocator.record_memory_history(stacks="python")
    names: dict[str, Any] = {"allocator": allocator}
    exec("allocator.allocate(512)\ncode = __import__('sys')._getframe().f_code", names)
    code = weakref.ref(names.pop("code"))
    names.clear()
    assert code() is not None
    del allocator
    assert not is_kept(code)


@pytest.mark.parametrize(("wrong", "text"), [
    ({"enabled": "some"}, "expected state to be 'state', 'all', or None"),
    ({"context": "some"}, "expected context to be 'state', 'alloc', 'all', or None"),
    ({"stacks": "some"}, "expected stacks to be 'python', or 'all'"),
    ({"skip_actions": ["some"]}, "Unknown TraceEntry action: some"),
    ({"max_entries": 1 << 40}, "at most 100000000 events are kept"),
])
def test_h2_bad_arguments_say_what_is_good(allocator: cachette_gpu.Allocator, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(cachette_gpu.HistoryError) as caught:
        allocator.record_memory_history(**wrong)
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, RuntimeError)
    assert not allocator.is_history_enabled()


def test_h3_the_last_events_are_kept(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(max_entries=10, context=None)
    for _ in range(100):
        allocator.allocate(512).free()
    (trace,) = allocator.snapshot()["device_traces"]
    assert len(trace) == 10
    allocator.record_memory_history(enabled="state")
    held = allocated_here(allocator)
    assert allocator.allocation_traceback(held.address) is not None
    allocator.record_memory_history(None)
    assert not any(allocator.snapshot()["device_traces"])


def test_h4_actions_are_left_out_by_name(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(skip_actions=["free_requested", "segment_alloc"])
    allocator.allocate(512).free()
    (trace,) = allocator.snapshot()["device_traces"]
    assert [event["action"] for event in trace] == ["alloc", "free_completed"]


def test_h7_a_snapshot_has_the_known_keys(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history()
    cachette_gpu.set_memory_metadata("warm-up")
    assert cachette_gpu.get_memory_metadata() == "warm-up"
    memory = allocator.allocate(1000)
    cachette_gpu.set_memory_metadata("")
    taken = allocator.snapshot()
    assert set(taken) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    (segment,) = taken["segments"]
    assert (segment["total_size"], segment["allocated_size"], segment["requested_size"]) == (2 << 20, 1024, 1000)
    assert [(block["state"], block["size"]) for block in segment["blocks"]] == [
        ("active_allocated", 1024), ("inactive", (2 << 20) - 1024)]
    event = next(it for it in taken["device_traces"][0] if it["action"] == "alloc")
    assert (event["addr"], event["size"], event["user_metadata"]) == (memory.address, 1000, "warm-up")
    assert not any(allocator.snapshot(include_traces=False)["device_traces"])


def test_h7_snapshots_are_files_by_name(allocator: cachette_gpu.Allocator, tmp_path: Path) -> None:
    held = allocator.allocate(1000)
    allocator.dump_snapshot(tmp_path / "a.pickle")
    allocator.dump_snapshot(str(tmp_path / "a.json"))
    assert pickle.loads((tmp_path / "a.pickle").read_bytes())["segments"] == allocator.snapshot()["segments"]
    assert json.loads((tmp_path / "a.json").read_text())["format"] == "cachette-snapshot"
    with pytest.raises(cachette_gpu.Error, match="let its name end in .json or .pickle"):
        allocator.dump_snapshot(tmp_path / "a.txt")
    with pytest.raises(cachette_gpu.Error, match="cannot write"):
        allocator.dump_snapshot(tmp_path / "none" / "a.json")
    assert sorted(it.name for it in tmp_path.iterdir()) == ["a.json", "a.pickle"]
    held.free()


def test_t7_figures_for_monitoring(allocator: cachette_gpu.Allocator) -> None:
    held = allocator.allocate(1000)
    page = allocator.metrics({"job": 'a "b"'})
    assert 'cachette_allocated_bytes{device="0",backend="host",job="a \\"b\\"",kind="all"} 1024' in page
    with pytest.raises(ValueError, match="no name of a label"):
        allocator.metrics({"1": ""})
    for taken in ("device", "backend", "kind", "version", "__name__"):
        with pytest.raises(ValueError, match="choose another name"):
            allocator.metrics({taken: "x"})
    held.free()


def test_m19_the_report_names_holders_and_hints() -> None:
    allocator = cachette_gpu.Allocator("host", "memory_limit:40M")
    allocator.record_memory_history(stacks="python")
    held = allocated_here(allocator)
    with pytest.raises(cachette_gpu.OutOfMemoryError) as caught:
        allocator.allocate(50 << 20)
    error = caught.value
    assert error.report == str(error)
    assert names(error.holders[0]["frames"])[0] == "allocated_here"
    assert error.holders[0]["bytes"] == 3 << 20
    assert any("raise it" in hint for hint in error.hints)
    assert error.pools[0]["id"] == error.pool == (0, 0)
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__
    held.free()


def test_h2_pytorchs_functions_record(run: Run) -> None:
    run(PRELUDE + """
assert not torch._C._cuda_isHistoryEnabled()
record("all", "all", "python", sys.maxsize, False, False, False, [])
assert torch._C._cuda_isHistoryEnabled() and cachette_gpu.torch.is_history_enabled()
torch._C._cuda_setMemoryMetadata("phase")
assert torch._C._cuda_getMemoryMetadata() == cachette_gpu.torch.get_memory_metadata() == "phase"
memory = allocate(1000)
(trace,) = torch._C._cuda_memorySnapshot(None)["device_traces"]
event = next(it for it in trace if it["action"] == "alloc")
assert (event["addr"], event["size"], event["user_metadata"]) == (memory, 1000, "phase")
assert [frame["name"] for frame in event["frames"]] == ["allocate", "<module>"], event
assert cachette_gpu.torch.allocation_traceback(memory) == event["frames"]
free(memory, 1000, 0, None)
assert events()[-3:] == ["snapshot", "free_requested", "free_completed"], events()
record("all", None, "python", 100, True, False, False, ["snapshot"])
assert events() == []
try:
    record("some", "all", "all", 1, False, False, False, [])
except RuntimeError as why:
    assert str(why) == "expected state to be 'state', 'all', or None"
else:
    raise AssertionError
torch._C._cuda_record_memory_history_legacy(True, True, 10, False, False, False, False, False, [])
memory = allocate(1000)
assert cachette_gpu.torch.allocation_traceback(memory) is not None
torch._C._cuda_record_memory_history_legacy(False)
assert not torch._C._cuda_isHistoryEnabled()
""", torch="good")


def test_h13_pytorchs_newer_functions_record_and_annotate(run: Run) -> None:
    run(PRELUDE + """
for name in ("_cuda_memoryMetadataSupported", "_cuda_annotateMemory"):
    setattr(torch._C, name, None)
cachette_gpu.torch._replace.replace(torch)
pytorch = torch._C
assert pytorch._cuda_memoryMetadataSupported()
record("all", "all", "python", 100, False, False, False, [], True, False)
assert not pytorch._cuda_isHistoryEnabled(), "a history of pinned memory alone is PyTorch's own"
record("all", "all", "python", 100, False, False, False, [], True, True)
memory = allocate(1000)
cachette_gpu.torch.set_memory_metadata({"step": 1})
assert pytorch._cuda_getMemoryMetadata() == '{"step":1}'
pytorch._cuda_annotateMemory(memory, "saved for backward")
cachette_gpu.torch.annotate_memory(memory + 1, "of another allocator")
(trace,) = pytorch._cuda_memorySnapshot(None)["device_traces"]
assert [it["user_metadata"] for it in trace if it["action"] == "annotate"] == ["saved for backward"]
assert [it["addr"] for it in trace if it["action"] == "annotate"] == [memory]
pytorch._cuda_record_memory_history_legacy(False, True, 1, False, False, True, False, False, [], False, True)
assert not pytorch._cuda_isHistoryEnabled()
""", torch="good")


def test_h1_a_request_that_gave_up_the_interpreters_lock_has_its_callers(run: Run) -> None:
    run(PRELUDE + """
def asks_for_it():
    return free_call(1000, 0, None)
for stacks in ("python", "all"):
    record("all", "all", stacks, 100, False, False, False, [])
    frames = cachette_gpu.torch.allocation_traceback(asks_for_it())
    assert any(frame["name"].endswith("asks_for_it") for frame in frames), frames
""", torch="good")


def test_h1_threads_that_ask_while_snapshots_are_taken_all_come_to_an_end(run: Run) -> None:
    run(PRELUDE + """
import threading
record("all", "all", "python", 10_000, False, False, False, [])
def ask():
    for _ in range(300):
        memory = free_call(1000, 0, None)
        free(memory, 1000, 0, None)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(20):
    cachette_gpu.torch.snapshot()
for thread in threads:
    thread.join(60)
assert not any(thread.is_alive() for thread in threads)
""", torch="good")


def test_h3_a_device_that_is_used_later_is_recorded_too(run: Run) -> None:
    run(PRELUDE + """
cachette_gpu.torch.record_memory_history(context=None)
assert cachette_gpu.torch.snapshot()["segments"] == [] == cachette_gpu.torch.memory_snapshot()
allocate(1000)
assert events() == ["segment_map", "alloc"]
""", torch="good")


def test_h11_snapshots_of_parts(run: Run, tmp_path: Path) -> None:
    run(PRELUDE + f"folder = {str(tmp_path)!r}" + """
cachette_gpu.torch.record_memory_history()
held = allocate(1000)
assert len(cachette_gpu.torch.snapshot(0)["segments"]) == len(cachette_gpu.torch.memory_snapshot()) == 1
assert cachette_gpu.torch.snapshot(1)["segments"] == [] == cachette_gpu.torch.memory_snapshot((0, 5))
assert torch._C._cuda_memorySnapshot((0, 5, True))["segments"] == []
assert len(torch._C._cuda_memorySnapshot((0, 0, False))["segments"]) == 1
cachette_gpu.torch.dump_snapshot(folder + "/a.pickle")
with open(folder + "/a.pickle", "rb") as file:
    assert pickle.load(file)["segments"] == cachette_gpu.torch.memory_snapshot()
assert 'device="0"' in cachette_gpu.torch.metrics(0) and 'job="x"' in cachette_gpu.torch.metrics(0, {"job": "x"})
""", torch="good")


def test_m18_observers_find_the_report(run: Run) -> None:
    done = run(PRELUDE + """
assert cachette_gpu.torch.last_out_of_memory() is None
seen = []
cachette_gpu.torch.attach_out_of_memory_observer(lambda *figures: seen.append(cachette_gpu.torch.last_out_of_memory()))
assert allocate(100 << 20) is None
(report,) = seen
assert report == cachette_gpu.torch.last_out_of_memory()
assert (report["requested"], report["limit"]) == (100 << 20, 64 << 20)
assert "tried to allocate 100.00 MiB" in report["report"] and report["hints"]
""", torch="good")
    assert "out of memory" in done.stderr


def test_h1_names_are_bare_as_in_pytorch(allocator: cachette_gpu.Allocator) -> None:
    class Layer:
        def forward(self) -> cachette_gpu.Allocation:
            return allocator.allocate(512)

    allocator.record_memory_history(stacks="python")
    held = Layer().forward()
    assert names(allocator.allocation_traceback(held.address))[0] == "forward"


def test_h3_another_kind_of_stacks_keeps_what_was_recorded(allocator: cachette_gpu.Allocator) -> None:
    allocator.record_memory_history(context="all", stacks="python")
    first = allocated_here(allocator)
    allocator.record_memory_history(context=None)
    second = allocator.allocate(512)
    allocator.record_memory_history(context="all", stacks="all")
    allocator.record_memory_history(context="all", stacks="python")
    (trace,) = allocator.snapshot()["device_traces"]
    stacks = {event["addr"]: names(event["frames"]) for event in trace if event["action"] == "alloc"}
    assert "allocated_here" in stacks[first.address]
    assert stacks[second.address] == []
    assert "allocated_here" in names(allocator.allocation_traceback(first.address))


def test_h5_frames_of_torchscript_and_of_the_forward_pass_are_pytorchs(run: Run) -> None:
    run(PRELUDE + """
record("all", "all", "python", 100, False, False, False, [])
record("all", "all", "python", 100, True, False, False, [])
memory = allocate(1000)
torch.node = torch.Node({"parent_": None, "traceback_": ['  File "net.py", line 3, in forward\\n    x * 2\\n']})
torch.script = [{"name": "scripted", "filename": "script.py", "line": 4}]
behind = allocate(1000)
torch.node, torch.script = torch.Node({}), []
plain = allocate(1000)
(trace,) = torch._C._cuda_memorySnapshot(None)["device_traces"]
events = {it["addr"]: it for it in trace if it["action"] == "alloc"}
assert events[behind]["forward_frames"] == ['  File "net.py", line 3, in forward\\n    x * 2\\n']
assert events[behind]["frames"][0] == {"name": "scripted", "filename": "script.py", "line": 4}
assert events[behind]["frames"][1]["name"] == "allocate"
for other in (memory, plain):
    assert "forward_frames" not in events[other] and events[other]["frames"][0]["name"] == "allocate"
assert torch._C._cuda_allocationTraceback(behind) == events[behind]["frames"]
""", torch="good")
