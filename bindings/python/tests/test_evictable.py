"""Pools that give up their memory under pressure, and memory that never changes behind its address."""

from __future__ import annotations

import ctypes

import pytest
from conftest import Run

import cachette_gpu

MiB = 1 << 20


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host", "expandable_segments:True,memory_limit:60MiB")


def test_the_lowest_priority_is_evicted_and_comes_back(allocator: cachette_gpu.Allocator) -> None:
    low, high = allocator.create_pool(priority=0), allocator.create_pool(priority=1)
    weights, kept = low.allocate(20 * MiB), high.allocate(20 * MiB)
    ctypes.memset(weights.address, 7, 20 * MiB)
    assert allocator.evictable_bytes == 40 * MiB
    with allocator.allocate(30 * MiB):
        assert low.is_asleep and not high.is_asleep
    with low.make_resident() as resident:
        assert ctypes.string_at(weights.address, 20 * MiB) == bytes([7]) * (20 * MiB)
        assert allocator.evict(1 << 40) == 20 * MiB and high.is_asleep
        with pytest.raises(cachette_gpu.PoolError):
            low.sleep()
    assert "released" in repr(resident)
    resident.release()
    assert allocator.evict(1) == 20 * MiB and low.is_asleep and kept.bytes == 20 * MiB
    assert "cachette_evictions_total" in allocator.metrics()


def test_dropped_contents_are_written_again_before_a_guard_is_given(allocator: cachette_gpu.Allocator) -> None:
    calls: list[tuple[int, int]] = []

    def reload(pool: tuple[int, int]) -> None:
        calls.append(pool)
        if len(calls) == 1:
            raise OSError("the file is away")
        ctypes.memset(weights.address, 3, 20 * MiB)

    pool = allocator.create_pool(priority=0, reload=reload)
    weights = pool.allocate(20 * MiB)
    assert allocator.evict(1) == 20 * MiB
    with pytest.raises(cachette_gpu.PoolError, match="OSError: the file is away"):
        pool.make_resident()
    with pool.make_resident(), pool.make_resident():
        assert ctypes.string_at(weights.address, 20 * MiB) == bytes([3]) * (20 * MiB)
    assert calls == [pool.id, pool.id]
    with pytest.raises(ValueError, match="pass a `priority` too"):
        allocator.create_pool(reload=reload)


def test_an_interrupt_in_a_callback_is_raised(allocator: cachette_gpu.Allocator) -> None:
    def stop(pool: tuple[int, int]) -> None:
        raise KeyboardInterrupt

    pool = allocator.create_pool(before_sleep=stop)
    memory = pool.allocate(2 * MiB)
    with pytest.raises(KeyboardInterrupt):
        pool.sleep()
    assert not pool.is_asleep and memory.bytes == 2 * MiB


def test_registered_memory_sleeps_only_if_its_owner_agrees(allocator: cachette_gpu.Allocator) -> None:
    pool = allocator.create_pool(registered=True)
    memory, outside = pool.allocate(4 * MiB), allocator.allocate(4 * MiB)
    assert allocator.is_stable(memory.address) and not allocator.is_stable(outside.address)
    with pytest.raises(cachette_gpu.PoolError, match="registered"):
        pool.sleep()
    asked: list[object] = []
    agreeing = allocator.create_pool(registered=True, before_sleep=asked.append)
    also = agreeing.allocate(4 * MiB)
    assert agreeing.sleep()["released"] >= 4 * MiB and asked == [agreeing.id]
    agreeing.wake()
    assert also.bytes == 4 * MiB


def test_pools_of_pytorchs_memory_are_evicted(run: Run) -> None:
    run("""
import ctypes
import cachette_gpu.torch
from cachette_gpu import _native
start = _native.plugin.start
_native.plugin.start = lambda backend, config: start("host", config)
cachette_gpu.torch.enable("expandable_segments:True,memory_limit:60MiB")
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
alloc = ALLOC(_native.plugin.addresses()["cachette_torch_alloc"])
layers = [cachette_gpu.torch.Pool(priority=0) for _ in range(3)]
weights = []
for number, pool in enumerate(layers):
    with pool:
        weights.append(alloc(30 << 20, 0, None))
    with pool.make_resident():
        ctypes.memset(weights[-1], number, 30 << 20)
assert [pool.is_asleep for pool in layers] == [True, False, False]
for number, pool in enumerate(layers):
    with pool.make_resident():
        assert ctypes.string_at(weights[number], 30 << 20) == bytes([number]) * (30 << 20)
""", torch="good")
