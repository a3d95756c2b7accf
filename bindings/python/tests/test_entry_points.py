"""The functions that PyTorch calls, called by ctypes on the host device."""

from __future__ import annotations

from conftest import Run

PRELUDE = """
import ctypes
from ctypes import c_int, c_size_t, c_void_p, c_double, c_uint64
from cachette_gpu import _native, torch
plugin = _native.plugin
plugin.start("host", CONFIG)
library = ctypes.CDLL(_native.__file__)

class Id(ctypes.Structure):
    _fields_ = [("first", c_uint64), ("second", c_uint64)]

def function(name, result, *arguments):
    it = getattr(library, "cachette_torch_" + name)
    it.restype, it.argtypes = result, arguments
    return it

alloc = function("alloc", c_void_p, c_size_t, c_int, c_void_p)
free = function("free", None, c_void_p, c_size_t, c_int, c_void_p)
init = function("init", None, c_int)
reset = function("reset", None)
memory_fraction = function("memory_fraction", None, c_double, c_int)
base_alloc = function("base_alloc", c_void_p, c_void_p, ctypes.POINTER(c_size_t))
record_stream = function("record_stream", None, c_void_p, c_void_p)
begin = function("begin_allocate_to_pool", None, c_int, Id, c_void_p)
end = function("end_allocate_to_pool", None, c_int, Id)
release = function("release_pool", None, c_int, Id)
stats = lambda: torch.memory_stats(0)
"""


def program(text: str, config: str = "") -> str:
    return PRELUDE.replace("CONFIG", repr(config)) + text


def test_the_library_exports_what_it_gives_out(run: Run) -> None:
    run(program("""
for name, address in plugin.addresses().items():
    exported = ctypes.cast(getattr(library, name), c_void_p).value
    assert exported == address, name
assert len(plugin.addresses()) == 10
"""))


def test_s2_no_bytes_are_null_and_null_is_freed(run: Run) -> None:
    run(program("""
init(0); init(1)
assert alloc(0, 0, None) is None
free(None, 0, 0, None)
assert plugin.memory_stats(0)["allocation"]["all"]["allocated"] == 0
"""))


def test_what_pytorch_allocates_python_counts(run: Run) -> None:
    run(program("""
assert torch.memory_allocated(0) == 0
memory = alloc(1000, 0, None)
assert torch.memory_allocated(0) == torch.max_memory_allocated("cuda:0") == 1024
assert torch.memory_reserved(0) == torch.max_memory_reserved(0) == 2 << 20
assert stats()["requested_bytes.all.current"] == 1000
free(memory, 1000, 0, None)
assert torch.memory_allocated(0) == 0
torch.reset_peak_memory_stats(0)
assert torch.max_memory_allocated(0) == 0
torch.reset_accumulated_memory_stats(0)
assert stats()["allocation.all.allocated"] == 0
assert "allocated_bytes" in torch.memory_summary(0)
assert len(torch.memory_summary(0, abbreviated=True)) < len(torch.memory_summary(0))
reset()
assert torch.memory_reserved(0) == 0
alloc(1000, 0, None); torch.empty_cache()
assert torch.memory_reserved(0) == 2 << 20
assert torch.mem_get_info(0)[1] > 0
"""))


def test_m15_the_fraction_comes_through_either_door(run: Run) -> None:
    run(program("""
assert torch.get_per_process_memory_fraction(0) == 1.0
memory_fraction(0.5, 0)
assert torch.get_per_process_memory_fraction(0) == 0.5
torch.set_per_process_memory_fraction(0.0, 0)
assert torch.get_per_process_memory_fraction(0) == 0.0
for wrong, kind in ((1, TypeError), (1.5, ValueError)):
    try:
        torch.set_per_process_memory_fraction(wrong, 0)
    except kind:
        pass
    else:
        raise AssertionError(wrong)
"""))


def test_m18_exhaustion_is_told_and_observed(run: Run) -> None:
    done = run(program("""
seen = []
torch.attach_out_of_memory_observer(lambda *figures: seen.append(figures))
assert alloc(64 << 20, 0, None) is None
assert [it[:3] for it in seen] == [(0, 64 << 20, 8 << 20)], seen
assert stats()["num_ooms"] == 1
memory = alloc(1 << 20, 0, None)
assert memory is not None
""", "memory_limit:8M"))
    assert "out of memory" in done.stderr


def test_base_and_record_know_their_memory(run: Run) -> None:
    run(program("""
first, second = alloc(512, 0, None), alloc(512, 0, None)
size = c_size_t(0)
assert base_alloc(second, ctypes.byref(size)) == first
assert size.value == 2 << 20
record_stream(None, None); record_stream(first, None); record_stream(12345, None)
free(first, 512, 0, None); free(second, 512, 0, None); free(12345, 1, 0, None)
assert torch.memory_allocated(0) == 0
""", "expandable_segments:False"))


def test_p3_a_pool_by_its_name(run: Run) -> None:
    run(program("""
pool = Id(0, 77)
begin(0, pool, None)
inside = alloc(1 << 20, 0, None)
end(0, pool)
outside = alloc(1 << 20, 0, None)
assert plugin.pool_check_live_allocations(0, (0, 77), {inside})
assert not plugin.pool_check_live_allocations(0, (0, 77), {inside, outside})
free(inside, 1 << 20, 0, None)
reset()   # neither the pool's memory nor that of `outside` goes back
assert torch.memory_reserved(0) == 4 << 20
release(0, pool); reset()
assert torch.memory_reserved(0) == 2 << 20
"""))


def test_p1_pools_of_ours_and_of_pytorch_never_meet(run: Run) -> None:
    run(program("""
ours = [_native.Allocator.shared(0).create_pool() for _ in range(3)]
for number in range(1, 20):   # as PyTorch counts its own
    begin(0, Id(0, number), None)
    end(0, Id(0, number))
ours += [_native.Allocator.shared(0).create_pool() for _ in range(3)]
assert len({pool.id for pool in ours}) == 6
with ours[0]:
    inside = alloc(1 << 20, 0, None)
assert ours[0].stats()["allocations"] == 1
assert all(pool.stats()["allocations"] == 0 for pool in ours[1:])
assert all(plugin.pool_check_live_allocations(0, (0, number), set()) for number in range(1, 20))
"""))


def test_a_second_start_is_an_error(run: Run) -> None:
    run(program("""
import cachette_gpu
assert plugin.is_started() and torch.config() == "never_block:True"
try:
    plugin.start("host", "")
except cachette_gpu.Error as why:
    assert "start it once" in str(why)
else:
    raise AssertionError
""", "never_block:True"))


def test_threads_allocate_and_free_each_others_memory(run: Run) -> None:
    run(program("""
import threading, queue
passed, failures = queue.Queue(), []
def work(seed):
    try:
        for turn in range(3000):
            size = 1 + (turn * 977 * seed) % 200_000
            passed.put((alloc(size, 0, None), size))
            memory, size = passed.get()
            free(memory, size, 0, None)
    except BaseException as why:
        failures.append(why)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 6)]
[it.start() for it in threads]; [it.join() for it in threads]
assert not failures and torch.memory_allocated(0) == 0
"""))
