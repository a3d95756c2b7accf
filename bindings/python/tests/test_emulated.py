"""CuPy and DLPack over the emulated CUDA library: real streams, real captures, device memory.

``CACHETTE_TEST_CUDA`` names the library; the project's own CI builds it.
"""

from __future__ import annotations

import os
import shutil

import pytest
from conftest import Run

LIBRARY = os.environ.get("CACHETTE_TEST_CUDA", "")
pytestmark = [
    pytest.mark.skipif(not LIBRARY, reason="CACHETTE_TEST_CUDA names no emulated CUDA library"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="the stand-in for CuPy needs a C++ compiler"),
]

PRELUDE = f"""
import ctypes, gc
import cachette_gpu, cachette_gpu.cupy, cupy
cuda = ctypes.CDLL({LIBRARY!r})

def check(status):
    assert status == 0, status

def context():
    check(cuda.cuInit(0))
    held = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(held), 0))
    check(cuda.cuCtxPushCurrent_v2(held))

def stream():
    made = ctypes.c_void_p()
    check(cuda.cuStreamCreate(ctypes.byref(made), 1))
    return cupy.cuda.Stream(made.value)

def begin(stream, mode):
    check(cuda.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.ptr), 2))

def end(stream):
    graph = ctypes.c_void_p()
    check(cuda.cuStreamEndCapture(ctypes.c_void_p(stream.ptr), ctypes.byref(graph)))

context()
cupy.cuda.begin, cupy.cuda.end = begin, end
"""


def attempt(run: Run, text: str) -> None:
    run(PRELUDE + text, torch="good", STAND_IN_CUPY="good", CACHETTE_CUDA_LIBRARY=LIBRARY)


def test_cupy_allocates_in_its_streams(run: Run) -> None:
    attempt(run, """
cachette_gpu.cupy.enable()
first, second = stream(), stream()
with first:
    array = cupy.empty(1000)
address = array.data.ptr
del array
with second:
    assert cupy.empty(1000).data.ptr != address
with first:
    assert cupy.empty(1000).data.ptr == address
assert cachette_gpu.cupy.stats()["allocation.all.allocated"] == 3
""")


def test_a_capture_has_its_own_pool_until_its_graph_is_gone(run: Run) -> None:
    attempt(run, """
cachette_gpu.cupy.enable()
captured_stream = stream()
with captured_stream:
    cupy.empty(1000)   # memory of the stream that the capture must not get
with cachette_gpu.cupy.capture(captured_stream) as captured:
    inside = cupy.empty(1000)
    address = inside.data.ptr
    assert captured.stats()["allocations"] == 1
    del inside
    again = cupy.empty(1000)
    del again
assert captured.stats()["allocations"] == 0 and captured.stats()["reserved_bytes"] == 2 << 20
with captured_stream:
    assert cupy.empty(1000).data.ptr != address   # the graph may run at any time
captured.launch()
assert captured.graph.launched == [captured_stream]
reserved = cachette_gpu.cupy.stats()["reserved_bytes.all.current"]
del captured
gc.collect()
cachette_gpu._native.plugin.empty_cache()
assert cachette_gpu.cupy.stats()["reserved_bytes.all.current"] <= reserved - (2 << 20)
""")


def test_a_capture_that_fails_leaves_cupy_as_it_was(run: Run) -> None:
    attempt(run, """
from cupy_backends.cuda import stream as current
captured_stream = stream()
try:
    cachette_gpu.cupy.capture(captured_stream).__enter__()
except cachette_gpu.Error as why:
    assert "call cachette_gpu.cupy.enable() first" in str(why)
else:
    raise AssertionError
cachette_gpu.cupy.enable()
try:
    with cachette_gpu.cupy.capture(captured_stream) as captured:
        raise KeyError("the program's own")
except KeyError:
    pass
assert current.current == 0
with cachette_gpu.cupy.capture(captured_stream) as captured:
    cupy.empty(1000)
cupy.cuda.begin = lambda stream, mode: None   # captures nothing
cupy.cuda.end = lambda stream: None
try:
    cachette_gpu.cupy.capture(captured_stream).__enter__()
except cachette_gpu.Error as why:
    assert "is not captured" in str(why)
else:
    raise AssertionError
assert current.current == 0
""")


def test_device_memory_has_both_protocols(run: Run) -> None:
    attempt(run, """
allocator = cachette_gpu.Allocator("cuda:0")
memory = allocator.allocate(24)
view = memory.view("float32", (2, 3))
assert view.__dlpack_device__() == (2, 0)
assert view.__cuda_array_interface__ == {
    "shape": (2, 3), "typestr": "<f4", "data": (memory.address, False), "strides": None, "stream": 1, "version": 3}
own = allocator.create_stream()
assert allocator.allocate(24, own).__cuda_array_interface__["stream"] == own.handle
assert allocator.allocate(24, own).__cuda_array_interface__["typestr"] == "|u1"
assert not hasattr(memory.view("bfloat16", (12,)), "__cuda_array_interface__")
for stream in (0, 2, -3):
    try:
        view.__dlpack__(stream=stream)
    except BufferError as why:
        assert f"stream={stream}" in str(why) and "pass " in str(why)
    else:
        raise AssertionError(stream)
for stream in (None, 1, -1, own.handle):
    view.__dlpack__(stream=stream, max_version=(1, 0), dl_device=(2, 0))
""")


def test_memory_is_freed_behind_the_consumers_stream(run: Run) -> None:
    attempt(run, """
allocator = cachette_gpu.Allocator("cuda:0")
own, consumer = allocator.create_stream(), allocator.create_stream()
memory = allocator.allocate(1000, own)
address = memory.address
capsule = memory.__dlpack__(stream=consumer.handle)
memory.free()
stats = lambda key: allocator.memory_stats()[key]
assert stats("allocation.all.current") == 1
del capsule
assert stats("allocation.all.current") == 0
assert allocator.allocate(1000, own).address in (address, address + 1024)
consumer.synchronize()
""")
