"""Pools that sleep: of an allocator, and of the plug-in behind a stand-in for PyTorch."""

from __future__ import annotations

import ctypes

import pytest
from conftest import Run

import cachette_gpu

ELASTIC = "expandable_segments:True"
MiB = 1 << 20


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host", ELASTIC)


def test_a_pool_that_sleeps_keeps_addresses_and_contents(allocator: cachette_gpu.Allocator) -> None:
    pool = allocator.create_pool()
    memory = pool.allocate(4 * MiB)
    address = memory.address
    ctypes.memset(address, 7, 4 * MiB)
    seen: list[tuple[int, int]] = []
    assert pool.sleep(progress=lambda *figures: seen.append(figures)) == {"released": 4 * MiB, "saved": 4 * MiB}
    assert seen[-1] == (4 * MiB, 4 * MiB)
    assert pool.is_asleep and pool.stats()["reserved_bytes"] == 0
    assert pool.sleep() == {"released": 0, "saved": 0}
    with pytest.raises(cachette_gpu.PoolError, match="the pool sleeps; wake it first") as caught:
        pool.allocate(512)
    assert isinstance(caught.value, cachette_gpu.Error)
    assert pool.wake() == 4 * MiB and not pool.is_asleep
    assert memory.address == address
    assert ctypes.string_at(address, 4 * MiB) == bytes([7]) * (4 * MiB)
    assert pool.sleep(keep=False)["saved"] == 0
    pool.wake()
    assert allocator.release_contents() >= 4 * MiB


def test_pools_with_a_tag_sleep_as_one(allocator: cachette_gpu.Allocator) -> None:
    pools = [allocator.create_pool(tag="weights") for _ in range(3)]
    held = [pool.allocate(2 * MiB) for pool in pools]
    assert allocator.sleep("weights", keep=False)["released"] == 6 * MiB
    assert all(pool.is_asleep for pool in pools)
    assert allocator.wake("weights") == 6 * MiB
    assert not any(pool.is_asleep for pool in pools)
    for call in (allocator.sleep, allocator.wake):
        with pytest.raises(cachette_gpu.Error, match="no pool has this tag"):
            call("unused")
    assert len(held) == 3


def test_what_cannot_sleep_says_why() -> None:
    allocator = cachette_gpu.Allocator("host", "expandable_segments:False")
    pool = allocator.create_pool()
    held = pool.allocate(512)
    with pytest.raises(cachette_gpu.Error, match="set expandable_segments:True"):
        pool.sleep()
    assert not pool.is_asleep and held.bytes == 512


def test_a_callable_that_raises_wakes_nobody(allocator: cachette_gpu.Allocator,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda it: raised.append(it.exc_value))
    pool = allocator.create_pool()
    held = pool.allocate(2 * MiB)

    def progress(done: int, total: int) -> None:
        raise KeyError(done)

    pool.sleep(progress=progress)
    assert pool.is_asleep and isinstance(raised[0], KeyError)
    pool.wake()
    assert held.bytes == 2 * MiB


#: The plug-in on the host device, behind a stand-in for PyTorch.
PRELUDE = """
import ctypes
import torch, cachette_gpu, cachette_gpu.torch
from cachette_gpu import _native
start = _native.plugin.start
_native.plugin.start = lambda backend, config: start("host", config)
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
alloc = ALLOC(_native.plugin.addresses()["cachette_torch_alloc"])
def fails(text, call):
    try:
        call()
    except cachette_gpu.Error as why:
        assert text in str(why), why
    else:
        raise AssertionError(text)
"""


def test_pools_of_pytorchs_memory_sleep(run: Run) -> None:
    run(PRELUDE + """
cachette_gpu.torch.enable("expandable_segments:True")
pool = cachette_gpu.torch.Pool(tag="weights")
assert pool.sleep() == {"released": 0, "saved": 0} and not pool.is_asleep
with pool:
    memory = alloc(4 << 20, 0, None)
assert cachette_gpu.torch.memory_snapshot(pool.id)[0]["segment_pool_id"] == pool.id
ctypes.memset(memory, 9, 4 << 20)
assert pool.sleep() == {"released": 4 << 20, "saved": 4 << 20}
assert ("synchronize", 0) in torch.recorded
assert pool.is_asleep and pool.stats()["reserved_bytes"] == 0
assert pool.wake() == 4 << 20
assert ctypes.string_at(memory, 4 << 20) == bytes([9]) * (4 << 20)
assert cachette_gpu.torch.sleep("weights")["released"] == 4 << 20 and pool.is_asleep
assert cachette_gpu.torch.wake("weights") == 4 << 20 and not pool.is_asleep
assert cachette_gpu.torch.release_contents() >= 4 << 20
fails("no pool has this tag", lambda: cachette_gpu.torch.sleep("unused"))
pool.release()
fails("released", pool.sleep)
""", torch="good")
