"""Pools of `cachette_gpu.torch`, on the host device."""

from __future__ import annotations

from conftest import Run

#: The plug-in on the host device.
PRELUDE = """
import ctypes
import cachette_gpu, cachette_gpu.torch
from cachette_gpu import _native
_native.plugin.start("host", "")
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
def fails(kind, text, call):
    try:
        call()
    except kind as why:
        assert text in str(why), why
    else:
        raise AssertionError(text)
"""

ENABLED = PRELUDE + """
cachette_gpu.torch._pool.is_enabled = lambda: True
"""


def test_with_leads_to_a_pool_where_cachette_is_enabled(run: Run) -> None:
    run(ENABLED + """
alloc = ALLOC(_native.plugin.addresses()["cachette_torch_alloc"])
pool = cachette_gpu.torch.Pool()
assert pool.stats()["allocations"] == 0
with pool, pool:
    inside = alloc(1000, 0, None)
outside = alloc(1000, 0, None)
assert pool.stats()["allocations"] == 1 and inside != outside
fails(cachette_gpu.Error, "has not entered", lambda: pool.__exit__(None, None, None))
pool.release(); pool.release()
fails(cachette_gpu.Error, "released", pool.stats)
fails(cachette_gpu.Error, "released", pool.__enter__)
""", torch="good")


def test_without_enable_a_pool_names_pytorchs_class(run: Run) -> None:
    run(PRELUDE + """
pool = cachette_gpu.torch.Pool()
for call in (pool.__enter__, pool.stats, pool.sleep, pool.wake, lambda: pool.is_asleep, lambda: pool.id):
    fails(cachette_gpu.Error, "use torch.cuda.MemPool", call)
pool.release()
""", torch="good")


def test_bad_arguments_say_what_is_good(run: Run) -> None:
    run(ENABLED + """
fails(cachette_gpu.Error, "no source named", cachette_gpu.torch.Pool("carrier pigeons").__enter__)
fails(cachette_gpu.ConfigError, "leave out `config`", lambda: cachette_gpu.torch.Pool(config="never_block:True"))
fails(cachette_gpu.Error, "enable the compiled class", lambda: cachette_gpu.torch.Pool().allocator)
""", torch="good")
