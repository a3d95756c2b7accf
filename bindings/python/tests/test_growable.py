"""Growable memory: addresses without memory, and memory that comes and goes in parts."""

from __future__ import annotations

import ctypes
import gc

import pytest

import cachette_gpu

MiB = 1 << 20


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host", "expandable_segments:True")


def test_memory_comes_and_goes_behind_addresses_that_stay(allocator: cachette_gpu.Allocator) -> None:
    cache = allocator.allocate_growable(1 << 36)
    address, page = cache.address, cache.page
    assert cache.bytes == 1 << 36 and cache.committed == 0 == allocator.allocated_bytes
    cache.commit(0, 4 * page)
    ctypes.memset(address, 7, 4 * page)
    cache.decommit(page, 3 * page)
    assert cache.committed == 2 * page == allocator.allocated_bytes
    assert ctypes.string_at(address + 3 * page, page) == bytes([7]) * page
    cache.commit(page, 3 * page)
    assert cache.address == address and cache.committed == 4 * page
    cache.record_stream(allocator.create_stream())
    cache.free()
    cache.free()
    assert allocator.allocated_bytes == 0
    assert repr(cache) == "<cachette_gpu.Growable, freed>"
    with pytest.raises(cachette_gpu.Error, match="already freed"):
        cache.commit(0, page)


def test_wrong_ranges_change_nothing_and_say_which_byte(allocator: cachette_gpu.Allocator) -> None:
    with allocator.allocate_growable(64 * MiB) as cache:
        page = cache.page
        cache.commit(0, page)
        for call, text in [
            (lambda: cache.commit(0, page), "byte 0 is committed already"),
            (lambda: cache.decommit(0, 2 * page), f"byte {page} is not committed"),
            (lambda: cache.commit(page, 65 * MiB), "is not within"),
            (lambda: cache.commit(2 * page, page), "is not within"),
        ]:
            with pytest.raises(ValueError, match=text):
                call()
        assert cache.committed == page
    with pytest.raises(ValueError, match="too many"):
        allocator.allocate_growable(1 << 60)
    with pytest.raises(OverflowError):
        allocator.allocate_growable(-1)


def test_a_commit_beyond_the_limit_fails_like_a_request() -> None:
    allocator = cachette_gpu.Allocator("host", "expandable_segments:True,memory_limit:32MiB")
    cache = allocator.allocate_growable(1 << 30)
    with pytest.raises(cachette_gpu.OutOfMemoryError):
        cache.commit(0, 64 * MiB)
    assert cache.committed == 0
    cache.commit(0, 32 * MiB)


def test_a_consumer_of_dlpack_keeps_the_addresses(allocator: cachette_gpu.Allocator) -> None:
    numpy = pytest.importorskip("numpy")
    cache = allocator.allocate_growable(8 * MiB)
    cache.commit(0, 2 * MiB)
    array = numpy.from_dlpack(cache)
    assert array.ctypes.data == cache.address and array.dtype == numpy.uint8 and array.shape == (cache.bytes,)
    array[:100] = 5
    cache.free()
    assert array[99] == 5 and allocator.allocated_bytes == 2 * MiB
    del array
    gc.collect()
    assert allocator.allocated_bytes == 0
    with pytest.raises(BufferError, match="copy the result"):
        allocator.allocate_growable(1).__dlpack__(copy=True)


def test_memory_of_a_pool_sleeps_with_it(allocator: cachette_gpu.Allocator) -> None:
    pool = allocator.create_pool()
    cache = pool.allocate_growable(64 * MiB)
    cache.commit(0, 4 * MiB)
    ctypes.memset(cache.address, 9, 4 * MiB)
    assert pool.sleep()["saved"] == 4 * MiB
    with pytest.raises(cachette_gpu.PoolError, match="wake it first"):
        cache.commit(4 * MiB, 8 * MiB)
    pool.wake()
    assert ctypes.string_at(cache.address, 4 * MiB) == bytes([9]) * (4 * MiB)
