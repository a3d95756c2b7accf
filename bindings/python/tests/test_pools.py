"""Pools of `cachette.torch`: below a stand-in for PyTorch, and of the plug-in on the host device."""

from __future__ import annotations

from conftest import Run

#: The plug-in on the host device, and what calls a slot's functions.
PRELUDE = """
import ctypes, gc
import cachette, cachette.torch
from cachette import _native
_native.plugin.start("host", "")
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
def functions(it):
    return ALLOC(it.alloc), FREE(it.free)
def fails(kind, text, call):
    try:
        call()
    except kind as why:
        assert text in str(why), why
    else:
        raise AssertionError(text)
"""


def test_m8_pytorchs_pool_is_given_two_functions(run: Run) -> None:
    run(PRELUDE + """
pool = cachette.torch.Pool(config="expandable_segments:False")
assert pool.stats()["reserved_bytes"] == 0
assert pool.allocator is pool.allocator
alloc, free = functions(pool.allocator)
memory = alloc(20 << 20, 0, None)
assert pool.stats() == {"allocations": 1, "allocated_bytes": 20 << 20, "segments": 1, "reserved_bytes": 20 << 20}
assert pool.stats(1)["allocations"] == 0
free(memory, 20 << 20, 0, None)
assert pool.stats()["reserved_bytes"] == 0
""", torch="good")


def test_m8_a_pool_without_memory_answers_null(run: Run) -> None:
    done = run(PRELUDE + """
pool = cachette.torch.Pool(config="memory_limit:4M")
alloc, free = functions(pool.allocator)
assert alloc(20 << 20, 0, None) is None
assert alloc(1 << 20, 0, None) is not None
""", torch="good")
    assert done.stderr == ""


def test_p9_the_functions_outlive_the_pool_that_nobody_released(run: Run) -> None:
    run(PRELUDE + """
pool = cachette.torch.Pool()
alloc, free = functions(pool.allocator)
del pool
gc.collect()
memory = alloc(1 << 20, 0, None)
assert memory is not None
free(memory, 1 << 20, 0, None)
""", torch="good")


def test_released_pools_make_room_for_others(run: Run) -> None:
    run(PRELUDE + """
pools = [cachette.torch.Pool() for _ in range(33)]
held = [functions(pool.allocator) for pool in pools[:32]]
fails(cachette.Error, "32 slots", lambda: pools[32].allocator)
memory = held[0][0](1 << 20, 0, None)
pools[0].release(); pools[0].release()
fails(cachette.Error, "released", lambda: pools[0].allocator)
fails(cachette.Error, "32 slots", lambda: pools[32].allocator)   # something is allocated by it still
held[0][1](memory, 1 << 20, 0, None)
assert pools[32].allocator is not None
""", torch="good")


def test_with_leads_to_a_pool_of_pytorchs(run: Run) -> None:
    run(PRELUDE + """
import torch
pool = cachette.torch.Pool(no_split=True)
with pool, pool:
    pass
names = [it[0] for it in torch.recorded]
assert names == ["MemPool", "begin", "begin", "end", "end"], names
made = torch.recorded[0][1]
assert made.no_split and made.allocator is pool.allocator
assert torch.recorded[1][1:] == (made, 0)
fails(cachette.Error, "has not entered", lambda: pool.__exit__(None, None, None))
pool.release()
fails(cachette.Error, "released", pool.__enter__)
""", torch="good")


def test_with_leads_to_a_pool_of_ours_where_cachette_is_enabled(run: Run) -> None:
    run(PRELUDE + """
cachette.torch._pool.is_enabled = lambda: True
library = ctypes.CDLL(_native.__file__)
alloc = ALLOC(_native.plugin.addresses()["cachette_torch_alloc"])
pool = cachette.torch.Pool()
assert pool.stats()["allocations"] == 0
with pool:
    inside = alloc(1000, 0, None)
outside = alloc(1000, 0, None)
assert pool.stats()["allocations"] == 1 and inside != outside
pool.release()
fails(cachette.Error, "released", pool.stats)
fails(cachette.ConfigError, "leave out `config`", lambda: cachette.torch.Pool(config="never_block:True"))
""", torch="good")


def test_bad_arguments_say_what_is_good(run: Run) -> None:
    run(PRELUDE + """
fails(cachette.ConfigError, "at byte", lambda: cachette.torch.Pool(config="nonsense"))
fails(cachette.Error, "choose nccl", lambda: cachette.torch.Pool("carrier pigeons").allocator)
""", torch="good")
