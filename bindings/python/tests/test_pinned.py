"""Pinned host memory, on the host device."""

from __future__ import annotations

import builtins
import gc
from typing import Any

import pytest

import cachette_gpu


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator("host", "")


def test_n1_memory_is_seen_through_a_view(allocator: cachette_gpu.Allocator) -> None:
    pinned = allocator.pinned()
    with pinned.allocate(1000) as memory:
        assert (memory.requested, memory.bytes) == (1000, 1024)
        assert memory.address and memory.device_address
        with memory.view() as view:
            assert (len(view), view.format, view.readonly) == (1000, "B", False)
            view[:5] = b"seven"
            with memory.view() as again:
                assert bytes(again[:5]) == b"seven"
        del view, again
    assert memory.is_freed and repr(memory) == "<cachette_gpu.PinnedAllocation, freed>"


def test_a_view_keeps_its_memory(allocator: cachette_gpu.Allocator) -> None:
    view = allocator.pinned().allocate(64).view()
    gc.collect()
    view[:] = bytes(range(64))
    assert allocator.pinned().stats()["active_requests.current"] == 1
    assert bytes(view) == bytes(range(64))
    del view
    gc.collect()
    assert allocator.pinned().stats()["active_requests.current"] == 0
    memory = allocator.pinned().allocate(64)
    view = memory.view()
    with pytest.raises(cachette_gpu.Error, match="release it before"):
        memory.free()
    view.release()
    del view
    memory.free()
    memory.free()
    with pytest.raises(cachette_gpu.Error, match="already freed"):
        memory.view()


def test_memory_is_not_freed_while_a_view_of_it_is_made(
    allocator: cachette_gpu.Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = allocator.pinned().allocate(4096)
    refused: list[cachette_gpu.Error] = []
    real = builtins.__import__

    def free_meanwhile(name: str, *rest: Any, **named: Any) -> Any:
        if name == "ctypes":  # what another thread could do here
            with pytest.raises(cachette_gpu.Error, match="release it before") as why:
                memory.free()
            refused.append(why.value)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", free_meanwhile)
    view = memory.view()
    monkeypatch.undo()
    assert refused and not memory.is_freed
    other = allocator.pinned().allocate(4096).view()
    other[:4] = b"ABCD"
    assert bytes(view[:4]) == bytes(4)


def test_a_view_that_could_not_be_made_leaves_the_memory_free_to_go(
    allocator: cachette_gpu.Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = allocator.pinned().allocate(64)
    real = builtins.__import__

    def no_ctypes(name: str, *rest: Any, **named: Any) -> Any:
        if name == "ctypes":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", no_ctypes)
    with pytest.raises(ImportError):
        memory.view()
    monkeypatch.undo()
    memory.free()
    assert memory.is_freed


def test_every_view_of_pinned_memory_counts(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.pinned().allocate(64)
    first, second = memory.view(), memory.view()
    second[:5] = b"seven"
    assert bytes(first[:5]) == b"seven"
    for view in (first, second):
        with pytest.raises(cachette_gpu.Error, match="release it before"):
            memory.free()
        view.release()
    del first, second, view
    memory.free()
    assert memory.is_freed


def test_n3_freed_memory_serves_again_after_its_uses(allocator: cachette_gpu.Allocator) -> None:
    pinned, stream = allocator.pinned(), allocator.create_stream()
    memory = pinned.allocate(3 << 20)
    address = memory.address
    memory.record_stream(stream)
    memory.free()
    stream.synchronize()
    assert pinned.allocate(3 << 20).address == address
    with pytest.raises(cachette_gpu.Error, match="already freed"):
        memory.record_stream(stream)


def test_n7_the_figures(allocator: cachette_gpu.Allocator) -> None:
    pinned = allocator.pinned()
    held = pinned.allocate((3 << 20) + 1)
    bytes = (3 << 20) + 4096
    stats = pinned.stats()
    assert (stats["num_host_alloc"], stats["allocated_bytes.current"], stats["active_requests.peak"]) == (1, bytes, 1)
    assert stats["host_alloc_time.count"] == 1
    held.free()
    assert pinned.empty_cache() == bytes
    pinned.reset_peak_stats()
    pinned.reset_accumulated_stats()
    stats = pinned.stats()
    assert stats["num_host_free"] == stats["active_bytes.peak"] == stats["allocations.allocated"] == 0


def test_a_request_that_finds_no_pinned_memory_is_out_of_memory(allocator: cachette_gpu.Allocator) -> None:
    with pytest.raises(cachette_gpu.OutOfMemoryError, match="out of pinned memory: .*; free pinned memory") as caught:
        allocator.pinned().allocate(1 << 50)
    assert isinstance(caught.value, MemoryError) and caught.value.requested == 1 << 50
    assert caught.value.device is None


def test_no_bytes_have_no_address(allocator: cachette_gpu.Allocator) -> None:
    with allocator.pinned().allocate(0) as memory:
        assert (memory.address, memory.device_address, memory.bytes) == (0, 0, 0)
        assert len(memory.view()) == 0
