"""`cachette_gpu.cupy`, with a stand-in for CuPy that calls the functions as CuPy 14.2 does, on the host device."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess

import pytest
from conftest import Run

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="the stand-in for CuPy needs a C++ compiler")

PRELUDE = """
import gc
from cachette_gpu import _native
_native.plugin.start("host", CONFIG)
import cachette_gpu, cachette_gpu.cupy, cupy
from cupy_backends.cuda import stream as current
stats = lambda: cachette_gpu.cupy.stats(0)
"""


def attempt(run: Run, text: str, cupy: str = "good", config: str = "",
            **variables: str) -> subprocess.CompletedProcess[str]:
    return run(PRELUDE.replace("CONFIG", repr(config)) + text, torch="good", STAND_IN_CUPY=cupy, **variables)


def test_without_cupy_it_says_what_to_install(run: Run) -> None:
    done = run("""
import sys; sys.modules["cupy"] = None
import cachette_gpu.cupy
try:
    cachette_gpu.cupy.enable()
except ImportError as why:
    print(why)
""")
    assert "CuPy cannot be imported" in done.stdout
    assert "pip install cupy-cuda13x" in done.stdout


@pytest.mark.parametrize(("cupy", "text"), [
    ("no-hook", "this CuPy (14.2.0) has no set_allocator"),
    ("no-stream", "this CuPy (14.2.0) does not export get_current_stream_ptr"),
    ("other-stream", "get_current_stream_ptr has another type"),
])
def test_a_cupy_without_the_hook_is_named_with_its_version(run: Run, cupy: str, text: str) -> None:
    done = attempt(run, """
try:
    cachette_gpu.cupy.enable()
except cachette_gpu.EnableError as why:
    print(why)
assert not cachette_gpu.cupy.is_enabled()
""", cupy)
    assert text in done.stdout
    assert "use CuPy 14" in done.stdout


def test_an_allocator_that_cupy_refuses_to_set_leaves_it_disabled(run: Run) -> None:
    done = attempt(run, """
def refuse(allocator=None):
    raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
usual, cupy.cuda.set_allocator = cupy.cuda.set_allocator, refuse
try:
    cachette_gpu.cupy.enable()
except ValueError as why:
    print(why)
assert not cachette_gpu.cupy.is_enabled()
cupy.cuda.set_allocator = usual
cachette_gpu.cupy.enable()
memory = cupy.cuda.alloc(1000)
assert stats()["allocated_bytes.all.current"] > 0
""")
    assert "using_allocator" in done.stdout


def test_memory_that_pytorch_shared_is_reused_after_cupy_has_freed_it(run: Run) -> None:
    attempt(run, """
import ctypes
cachette_gpu.cupy.enable()
library = ctypes.CDLL(_native.__file__)
write = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
handles = []
keep = write(lambda user, handle, bytes: handles.append(ctypes.string_at(handle, bytes)))
memory = cupy.cuda.alloc(1 << 20)
# As for a tensor over the array that goes to another process.
library.cachette_adapter_share(ctypes.c_void_p(memory.ptr), keep, None)
assert len(handles[0]) > 100
first = memory.ptr
del memory
gc.collect()
assert stats()["active_bytes.all.current"] == 0, stats()["active_bytes.all.current"]
assert cupy.cuda.alloc(1 << 20).ptr == first
""")


def test_a_default_stream_for_each_thread_is_refused(run: Run) -> None:
    done = attempt(run, """
try:
    cachette_gpu.cupy.enable()
except cachette_gpu.EnableError as why:
    print(why)
""", CUPY_CUDA_PER_THREAD_DEFAULT_STREAM="1")
    assert "unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM" in done.stdout
    attempt(run, """
cachette_gpu.cupy.enable()
current.current = 2
try:
    cupy.empty(100)
except cachette_gpu.Error as why:
    assert "default stream of a thread" in str(why)
else:
    raise AssertionError
""")


@pytest.mark.parametrize("cupy", ["good", "older"])
def test_arrays_come_from_the_cache_and_go_back_to_it(run: Run, cupy: str) -> None:
    attempt(run, """
cachette_gpu.cupy.enable()
array = cupy.empty(1000)
address = array.data.ptr
assert stats()["allocated_bytes.all.current"] == 1024
del array
assert stats()["allocated_bytes.all.current"] == 0
assert cupy.empty(1000).data.ptr == address
assert cupy.empty(0).data.ptr == 0
assert stats()["num_ooms"] == 0
""", cupy)


@pytest.mark.parametrize("cupy", ["good", "older"])
def test_exhaustion_is_cupys_own_error_with_ours_as_its_cause(run: Run, cupy: str) -> None:
    attempt(run, """
cachette_gpu.cupy.enable()
kept = cupy.empty(1 << 20)
try:
    cupy.empty(64 << 20)
except cupy.cuda.memory.OutOfMemoryError as why:
    assert str(why) == ("Out of memory allocating 67,108,864 bytes (allocated so far: 2,097,152 bytes, limit set to: "
                        "8,388,608 bytes)."), why
    assert isinstance(why.__cause__, cachette_gpu.OutOfMemoryError)
    assert why.__cause__.requested == 64 << 20
else:
    raise AssertionError
assert cupy.empty(1 << 20).data.ptr   # and it goes on
""", cupy, "memory_limit:8M")


def test_a_stream_with_memory_outlives_its_object(run: Run) -> None:
    done = attempt(run, """
import weakref
cachette_gpu.cupy.enable()
streams = [cachette_gpu.Allocator.shared(0).create_stream() for _ in range(2)]
used, unused = [cupy.cuda.Stream(stream.__cuda_stream__()[1]) for stream in streams]
with used:
    memory = cupy.cuda.alloc(1 << 20)
with unused:
    pass
alive = [weakref.ref(used), weakref.ref(unused)]
del used, unused, memory
gc.collect()
print([stream() is not None for stream in alive])
""")
    assert done.stdout.split("\n")[-2] == "[True, False]", done.stdout + done.stderr


def test_a_stream_that_the_driver_does_not_know_is_an_error(run: Run) -> None:
    attempt(run, """
cachette_gpu.cupy.enable()
with cupy.cuda.Stream(1 << 20):
    try:
        cupy.empty(1000)
    except cachette_gpu.Error as why:
        assert "does not know the stream 0x100000" in str(why)
    else:
        raise AssertionError
assert cupy.empty(1000).data.ptr
""")


def test_an_error_of_cupys_own_comes_through(run: Run) -> None:
    attempt(run, """
cachette_gpu.cupy.enable()
current.current = -1
try:
    cupy.empty(100)
except cachette_gpu.Error as why:
    assert "has no handle" in str(why)
else:
    raise AssertionError
""")


def test_the_second_time_with_the_same_configuration_does_nothing(run: Run) -> None:
    attempt(run, """
cachette_gpu.cupy.enable("never_block:True")
allocator = cupy.cuda.get_allocator()
cachette_gpu.cupy.enable()
cachette_gpu.cupy.enable(" never_block : True ")
assert cupy.cuda.get_allocator() is allocator
try:
    cachette_gpu.cupy.enable("expandable_segments:True")
except cachette_gpu.EnableError as why:
    assert "with the configuration 'never_block:True'" in str(why), why
else:
    raise AssertionError
""", config="never_block:True")


def test_disabled_cupy_has_its_own_pool_again_and_arrays_stay(run: Run) -> None:
    attempt(run, """
before = cupy.cuda.get_allocator()
cachette_gpu.cupy.disable()
cachette_gpu.cupy.enable()
array = cupy.empty(1000)
cachette_gpu.cupy.disable()
assert cupy.cuda.get_allocator() == before and not cachette_gpu.cupy.is_enabled()
assert cupy.empty(1000).data.ptr == 1 << 40
assert stats()["allocated_bytes.all.current"] == 1024
del array
assert stats()["allocated_bytes.all.current"] == 0
cachette_gpu.cupy.enable()
assert cupy.empty(1000).data.ptr != 1 << 40
""")


def test_what_cupys_own_pool_holds_is_told_once(run: Run) -> None:
    done = attempt(run, """
cachette_gpu.cupy._is_driver_used = lambda backend: True
cachette_gpu.cupy.enable()
cachette_gpu.cupy.enable()
assert cupy.empty(1000).data.ptr != 1 << 40
""", "holding")
    assert done.stderr == ("cachette: CuPy's own pool holds 1048576 bytes of this device, of which 524288 are in use; "
                           "cupy.get_default_memory_pool().free_all_blocks() releases the others\n")
    assert attempt(run, "cachette_gpu.cupy.enable()").stderr == ""


def test_pytorch_and_cupy_share_one_cache_in_either_order(run: Run) -> None:
    for first, second in (("cupy", "torch"), ("torch", "cupy")):
        program = f"""
import cachette_gpu.torch, torch, ctypes
def enable(name):
    if name == "torch":
        cachette_gpu.torch.enable(compiled=False)
    else:
        cachette_gpu.cupy.enable()
enable("{first}"); enable("{second}")
_, path, alloc, free = torch.recorded[0]
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(alloc)
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(free)
array = cupy.empty(3 << 20)
address = array.data.ptr
del array
tensor = alloc(3 << 20, 0, None)
assert tensor == address
assert cachette_gpu.torch.memory_reserved(0) == stats()["reserved_bytes.all.current"] == 4 << 20
free(tensor, 3 << 20, 0, None)
"""
        attempt(run, program)


def test_a_snapshot_says_that_cupy_asked(run: Run) -> None:
    attempt(run, """
cachette_gpu.cupy.enable()
array = cupy.empty(1000)
blocks = [block for segment in _native.plugin.snapshot(None)["segments"] for block in segment["blocks"]]
held = [block for block in blocks if block["state"] == "active_allocated"]
assert [block.get("label") for block in held] == ["cupy"], held
""")


def test_threads_allocate_and_free_each_others_arrays(run: Run) -> None:
    attempt(run, """
import queue, threading
cachette_gpu.cupy.enable()
passed, failures = queue.Queue(), []
def work(seed):
    try:
        for turn in range(500):
            passed.put(cupy.empty(1 + (turn * 977 * seed) % 200_000))
            passed.get()
    except BaseException as why:
        failures.append(why)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
[it.start() for it in threads]; [it.join() for it in threads]
gc.collect()
assert not failures, failures
assert stats()["allocated_bytes.all.current"] == 0
""")


def test_the_compiled_call_site_of_cupy_itself_passes_errors_on(run: Run) -> None:
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed; the stand-in calls as CuPy does")
    run("""
import ctypes
from cachette_gpu import _native
_native.plugin.start("host", "memory_limit:8M")
import cachette_gpu, cachette_gpu.cupy, cupy
from cupy.cuda.memory import CFunctionAllocatorMemory, OutOfMemoryError
if cachette_gpu.cupy._version(cupy.__version__) >= cachette_gpu.cupy.CATCHES:
    # CuPy's own function needs a GPU, so the current stream is always the default one.
    zero = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: 0)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    malloc, free = _native.cupy.connect(new(ctypes.cast(zero, ctypes.c_void_p), b"intptr_t (void)", None))
    memory = CFunctionAllocatorMemory(1000, 0, malloc, free, 0)
    assert cachette_gpu.cupy.stats()["allocated_bytes.all.current"] == 1024
    try:
        CFunctionAllocatorMemory(64 << 20, 0, malloc, free, 0)
    except OutOfMemoryError as why:
        assert isinstance(why.__cause__, cachette_gpu.OutOfMemoryError)
    else:
        raise AssertionError
    del memory
    assert cachette_gpu.cupy.stats()["allocated_bytes.all.current"] == 0
""")
