"""Forks, ends of processes, and memory that is still held by then."""

from __future__ import annotations

from pathlib import Path

from conftest import Run


def test_a_process_may_end_with_live_memory(run: Run) -> None:
    run("""
import cachette_gpu
allocator = cachette_gpu.Allocator()
pool = allocator.create_pool()
held = [allocator.allocate(1 << 20, allocator.create_stream()) for _ in range(50)]
pool.__enter__()
held.append(allocator.allocate(100))
held.append(held)  # a cycle, which only the end of the interpreter breaks
allocator.on_out_of_memory(lambda figures: None)
""")


def test_a_process_may_end_while_threads_allocate(run: Run) -> None:
    run("""
import cachette_gpu, threading, time
allocator = cachette_gpu.Allocator()
def work():
    while True:
        allocator.allocate(100_000).free()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
""")


def test_exit_handlers_may_still_allocate(run: Run) -> None:
    done = run("""
import atexit, cachette_gpu
allocator = cachette_gpu.Allocator()
held = allocator.allocate(100)
def late():
    held.free()
    with allocator.allocate(1000) as memory:
        print(memory.bytes)
atexit.register(late)
""")
    assert done.stdout == "1024\n"


def test_errors_at_the_end_of_the_interpreter_are_exceptions(run: Run) -> None:
    done = run("""
import builtins, cachette_gpu
memory = cachette_gpu.Allocator().allocate(64)
memory.free()
class Owner:
    def __del__(self):
        try:
            memory.address
        except Exception as why:
            print(type(why).__name__, why)
builtins.kept = Owner()  # lives until the modules are gone
""")
    assert done.stdout == "Error this memory was already freed\n"


def test_a_cycle_that_the_end_collects_may_use_released_objects(run: Run) -> None:
    done = run("""
import cachette_gpu
class Cache:
    def __init__(self):
        self.pool = cachette_gpu.Allocator().create_pool()
        self.cycle = self
    def __del__(self):
        self.pool.release()
        try:
            self.pool.stats()
        except Exception as why:
            print(type(why).__name__)
kept = Cache()
""")
    assert done.stdout == "PoolError\n"


def test_errors_need_no_module_that_can_still_be_imported(run: Run) -> None:
    done = run("""
import sys, cachette_gpu
allocator = cachette_gpu.Allocator()
sys.modules["cachette_gpu._errors"] = None
for call in (lambda: allocator.allocate(1 << 50), lambda: allocator.set_config("no_such_key:1"),
             lambda: allocator.record_memory_history("never"), lambda: cachette_gpu.Allocator("no such device")):
    try:
        call()
    except cachette_gpu.Error as why:
        print(type(why).__name__)
""")
    assert done.stdout.split() == ["OutOfMemoryError", "ConfigError", "HistoryError", "Error"]


def test_a_forked_child_ends_without_harm(run: Run) -> None:
    done = run("""
import cachette_gpu, os
allocator = cachette_gpu.Allocator()
stream = allocator.create_stream()
held = [allocator.allocate(1 << 20, stream) for _ in range(5)]
child = os.fork()
if child == 0:
    held.clear()   # frees what the parent has
    raise SystemExit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
held.pop().free()
assert allocator.allocated_bytes == 4 << 20
print("parent is whole")
""")
    assert done.stdout == "parent is whole\n"


def test_a_child_that_is_forked_while_stacks_are_named_goes_on(run: Run, tmp_path: Path) -> None:
    run("""
import os, signal, threading, warnings
import cachette_gpu
warnings.simplefilter("ignore")
allocator = cachette_gpu.Allocator()
allocator.record_memory_history(stacks="python", max_entries=20_000)
def deep(depth):
    return deep(depth - 1) if depth else allocator.allocate(512)
held = []
for number in range(300):
    names = {"deep": deep}
    exec(compile("def made(): return deep(%d)" % (number % 50), "%d.py" % number, "exec"), names)
    held.append(names["made"]())
taken = threading.Semaphore(0)
def name_stacks():
    while True:
        allocator.dump_snapshot(os.path.join(os.environ["FOLDER"], "%d.json" % threading.get_ident()))
        taken.release()
for _ in range(2):
    threading.Thread(target=name_stacks, daemon=True).start()
taken.acquire()
def in_child():
    held.pop().free()
    held.clear()
    allocator.snapshot()
    allocator.record_memory_history(None)
    try:
        allocator.empty_cache()
    except cachette_gpu.Error:
        pass
    own = cachette_gpu.Allocator()
    own.allocate(100).free()
    own.record_memory_history(stacks="python")
    memory = own.allocate(100)
    return [frame["name"] for frame in own.allocation_traceback(memory.address)]
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        os._exit(in_child() != ["in_child", "<module>"])
    _, status = os.waitpid(child, 0)
    assert status == 0, status
os._exit(0)
""", FOLDER=str(tmp_path))


def test_the_plug_in_tells_a_forked_child_to_spawn(run: Run) -> None:
    done = run("""
import ctypes, os
from cachette_gpu import _native
_native.plugin.start("host", "")
library = ctypes.CDLL(_native.__file__)
library.cachette_torch_alloc.restype = ctypes.c_void_p
library.cachette_torch_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
library.cachette_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
library.cachette_torch_free.restype = None
held = library.cachette_torch_alloc(1 << 20, 0, None)
child = os.fork()
if child == 0:
    assert library.cachette_torch_alloc(1 << 20, 0, None) is None
    library.cachette_torch_free(held, 1 << 20, 0, None)
    assert _native.plugin.memory_stats(0)["allocation"]["all"]["current"] == 0
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
library.cachette_torch_free(held, 1 << 20, 0, None)
assert _native.plugin.memory_stats(0)["allocation"]["all"]["current"] == 0
""")
    assert "spawn" in done.stderr


def test_a_plug_in_that_has_used_no_device_survives_a_fork(run: Run) -> None:
    run("""
import os
from cachette_gpu import _native
_native.plugin.start("host", "")
child = os.fork()
if child == 0:
    free, total = _native.plugin.memory_info(0)
    os._exit(0 if 0 < free <= total else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
""")


def test_memory_of_a_shared_tensor_is_withdrawn_with_its_free(run: Run) -> None:
    run("""
import ctypes, cachette_gpu
from cachette_gpu import _native
_native.plugin.start("host", "")
allocator = cachette_gpu.Allocator.shared()
memory = allocator.allocate(2 << 20)
# PyTorch does so for a tensor that it made of the memory by DLPack.
written = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(lambda *_: None)
ctypes.CDLL(_native.__file__).cachette_adapter_share(ctypes.c_void_p(memory.address), written, None)
memory.free()
allocator.empty_cache()
assert allocator.reserved_bytes == 0, "no other process has it"
""")
