"""The package's own calls, on the host device."""

from __future__ import annotations

import doctest
import gc
import pickle
import threading

import pytest

import cachette_gpu


@pytest.fixture
def allocator() -> cachette_gpu.Allocator:
    return cachette_gpu.Allocator()


def test_the_version_is_a_version() -> None:
    assert cachette_gpu.__version__.count(".") == 2


def test_the_documentation_runs() -> None:
    assert doctest.testmod(cachette_gpu).failed == 0


def test_every_backend_is_listed_with_devices_or_a_reason() -> None:
    backends = cachette_gpu.devices()
    assert [entry["backend"] for entry in backends] == ["cuda", "hip", "host"]
    for entry in backends:
        assert entry["reason"] is None or (entry["reason"] and not entry["devices"])
    (host,) = backends[-1]["devices"]
    assert host["device"] == "host:0"
    assert host["reason"] is None
    assert (host["total_memory"] or 0) >= (host["free_memory"] or 0) > 0


def test_a_device_that_is_not_there_is_an_error_that_says_what_is() -> None:
    with pytest.raises(cachette_gpu.Error, match="choose one of cuda, hip, host"):
        cachette_gpu.Allocator("abacus")
    with pytest.raises(cachette_gpu.Error, match="it has 1 device, number 0"):
        cachette_gpu.Allocator("host:7")


def test_memory_goes_back_by_free_by_with_and_with_the_object(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(1000)
    assert (memory.requested, memory.bytes) == (1000, 1024)
    assert memory.address % 512 == 0
    assert allocator.allocated_bytes == 1024
    memory.free()
    memory.free()
    assert memory.is_freed
    assert allocator.allocated_bytes == 0
    with allocator.allocate(1000) as memory:
        assert not memory.is_freed
        assert allocator.allocated_bytes == 1024
    assert memory.is_freed
    held = allocator.allocate(1000)
    del held
    gc.collect()
    assert allocator.allocated_bytes == 0


def test_freed_memory_has_no_address(allocator: cachette_gpu.Allocator) -> None:
    memory = allocator.allocate(1)
    memory.free()
    with pytest.raises(cachette_gpu.Error, match="already freed"):
        _ = memory.address
    assert repr(memory) == "<cachette_gpu.Allocation, freed>"


def test_s2_no_bytes_have_no_address(allocator: cachette_gpu.Allocator) -> None:
    with allocator.allocate(0) as memory:
        assert memory.address == 0
        assert memory.bytes == 0


def test_bad_arguments_are_type_and_overflow_errors(allocator: cachette_gpu.Allocator) -> None:
    with pytest.raises(OverflowError):
        allocator.allocate(-1)
    with pytest.raises(TypeError):
        allocator.allocate("much")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^stream must be a cachette_gpu.Stream or an int, .* not str"):
        allocator.allocate(1, "stream")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="and not float"):
        allocator.allocate(1).record_stream(1.5)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        allocator.allocate(1, -1)


def test_memory_serves_the_same_stream_again(allocator: cachette_gpu.Allocator) -> None:
    ours, theirs = allocator.create_stream(), allocator.create_stream()
    memory = allocator.allocate(4096, ours)
    address = memory.address
    memory.free()
    assert allocator.allocate(4096, theirs).address != address
    assert allocator.allocate(4096, ours).address == address


def test_a_stream_can_be_named_by_its_handle(allocator: cachette_gpu.Allocator) -> None:
    stream = allocator.create_stream()
    by_object = allocator.allocate(4096, stream)
    address = by_object.address
    by_object.free()
    assert allocator.allocate(4096, stream.handle).address == address
    stream.synchronize()


def test_a_stream_of_another_allocator_is_refused(allocator: cachette_gpu.Allocator) -> None:
    stream = cachette_gpu.Allocator().create_stream()
    with pytest.raises(cachette_gpu.Error, match="another allocator"):
        allocator.allocate(1, stream)


def test_e1_a_recorded_use_ends_with_its_stream(allocator: cachette_gpu.Allocator) -> None:
    ours, copies = allocator.create_stream(), allocator.create_stream()
    memory = allocator.allocate(4096, ours)
    memory.record_stream(copies)
    memory.free()
    copies.synchronize()
    assert allocator.allocated_bytes == 0
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
    with pytest.raises(cachette_gpu.Error, match="already freed"):
        memory.record_stream(copies)


def test_t1_the_statistics_have_the_known_keys(allocator: cachette_gpu.Allocator) -> None:
    with allocator.allocate(1000):
        stats = allocator.memory_stats()
        assert stats["allocated_bytes.all.current"] == 1024
        assert stats["requested_bytes.small_pool.current"] == 1000
        assert stats["allocation.all.allocated"] == 1
        assert stats["reserved_bytes.all.current"] == 2 << 20
    stats = allocator.memory_stats()
    assert list(stats) == sorted(stats)
    assert stats["allocated_bytes.all.current"] == 0
    assert stats["allocated_bytes.all.peak"] == 1024
    assert stats["max_split_size"] == -1
    arrays = ["active", "active_bytes", "allocated_bytes", "allocation", "inactive_split", "inactive_split_bytes",
              "requested_bytes", "reserved_bytes", "segment"]
    for array in arrays:
        for kind in ("all", "small_pool", "large_pool"):
            for figure in ("current", "peak", "allocated", "freed"):
                assert isinstance(stats[f"{array}.{kind}.{figure}"], int)
    assert "allocated_bytes" in allocator.memory_summary()


def test_t5_peaks_and_sums_are_reset(allocator: cachette_gpu.Allocator) -> None:
    allocator.allocate(1000).free()
    allocator.reset_peak_memory_stats()
    assert allocator.memory_stats()["allocated_bytes.all.peak"] == 0
    allocator.reset_accumulated_memory_stats()
    stats = allocator.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 0


def test_empty_cache_says_what_went_back(allocator: cachette_gpu.Allocator) -> None:
    allocator.allocate(1000).free()
    assert allocator.reserved_bytes == 2 << 20
    assert allocator.empty_cache() == 2 << 20
    assert allocator.reserved_bytes == 0
    free, total = allocator.memory_info()
    assert 0 < free <= total


def test_m15_the_fraction_is_a_bound(allocator: cachette_gpu.Allocator) -> None:
    assert allocator.get_memory_fraction() == 1.0
    allocator.set_memory_fraction(0.25)
    assert allocator.get_memory_fraction() == pytest.approx(0.25)
    allocator.set_memory_fraction(0.0)
    assert allocator.get_memory_fraction() == 0.0
    with pytest.raises(cachette_gpu.OutOfMemoryError):
        allocator.allocate(1)
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        allocator.set_memory_fraction(1.5)


def test_m18_out_of_memory_has_the_figures() -> None:
    allocator = cachette_gpu.Allocator("host", "memory_limit:4M")
    held = allocator.allocate(1 << 20)
    seen: list[dict[str, int]] = []
    allocator.on_out_of_memory(seen.append)
    with pytest.raises(cachette_gpu.OutOfMemoryError, match="on device 0: tried to allocate 32.00 MiB") as caught:
        allocator.allocate(32 << 20)
    error = caught.value
    assert isinstance(error, (cachette_gpu.Error, MemoryError))
    assert (error.device, error.requested, error.limit) == (0, 32 << 20, 4 << 20)
    assert (error.allocated, error.reserved) == (1 << 20, 2 << 20)
    assert error.unallocated == 1 << 20
    assert [(it["requested"], it["limit"]) for it in seen] == [(32 << 20, 4 << 20)]
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__
    held.free()


def test_s3_more_than_any_device_has_is_out_of_memory(allocator: cachette_gpu.Allocator) -> None:
    with pytest.raises(cachette_gpu.OutOfMemoryError, match="no device has 1 EiB") as caught:
        allocator.allocate(1 << 61)
    assert caught.value.requested == 1 << 61
    assert caught.value.device is None


def test_an_observer_that_raises_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda it: raised.append(it.exc_value))
    allocator = cachette_gpu.Allocator("host", "memory_limit:1M")

    def observe(figures: dict[str, int]) -> None:
        raise KeyError("mine")

    allocator.on_out_of_memory(observe)
    with pytest.raises(cachette_gpu.OutOfMemoryError):
        allocator.allocate(1)
    assert isinstance(raised[0], KeyError)


def test_the_configuration_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = cachette_gpu.Allocator("host", " max_split_size_mb : 64, ")
    assert allocator.config == "max_split_size_mb:64"
    assert allocator.memory_stats()["max_split_size"] == 64 << 20
    allocator.set_config("never_block:True")
    assert allocator.config == "never_block:True"
    monkeypatch.setenv("CACHETTE_ALLOC_CONF", "expandable_segments:False")
    assert cachette_gpu.Allocator().config == "expandable_segments:False"
    assert cachette_gpu.Allocator("host", "").config == ""


@pytest.mark.parametrize("text", ["nonsense", "caching:no", "max_split_size_mb:1"])
def test_a_bad_configuration_says_where(text: str) -> None:
    with pytest.raises(cachette_gpu.ConfigError, match="at byte") as caught:
        cachette_gpu.Allocator("host", text)
    assert isinstance(caught.value, ValueError)


def test_elastic_segments_serve_by_default() -> None:
    reserved = {}
    for config in ("", "expandable_segments:True", "expandable_segments:False"):
        allocator = cachette_gpu.Allocator("host", config)
        memory = [allocator.allocate(size << 20) for size in (1, 30, 7)]
        assert len({it.address for it in memory}) == 3
        reserved[config] = allocator.reserved_bytes >> 20
    assert reserved == {"": 38, "expandable_segments:True": 38, "expandable_segments:False": 52}


def test_p4_a_pool_serves_the_thread_that_entered_it() -> None:
    allocator = cachette_gpu.Allocator("host", "expandable_segments:False")
    pool = allocator.create_pool()
    elsewhere: list[int] = []
    with pool:
        inside = allocator.allocate(1000)
        thread = threading.Thread(target=lambda: elsewhere.append(allocator.allocate(1000).bytes))
        thread.start()
        thread.join()
    outside = allocator.allocate(1000)
    assert pool.stats() == {
        "allocations": 1, "allocated_bytes": 1024, "segments": 1, "reserved_bytes": 2 << 20}
    assert elsewhere == [1024]
    assert inside.address != outside.address
    assert pool.allocate(1000).bytes == 1024


def test_p7_pools_nest_and_the_last_serves(allocator: cachette_gpu.Allocator) -> None:
    outer, inner = allocator.create_pool(), allocator.create_pool()
    held = []
    with outer:
        with inner, inner:
            held.append(allocator.allocate(512))
        held.append(allocator.allocate(512))
    assert inner.id != outer.id
    assert inner.stats()["allocations"] == outer.stats()["allocations"] == 1


def test_p8_a_pool_that_does_not_split_has_a_segment_for_each(allocator: cachette_gpu.Allocator) -> None:
    pool = allocator.create_pool(no_split=True)
    held = [pool.allocate(512) for _ in range(3)]
    assert pool.stats()["segments"] == len(held)


def test_p6_memory_outlives_its_pool(allocator: cachette_gpu.Allocator) -> None:
    pool = allocator.create_pool()
    memory = pool.allocate(512)
    pool.release()
    pool.release()
    assert memory.bytes == 512
    with pytest.raises(cachette_gpu.PoolError, match="was released"):
        pool.allocate(512)
    memory.free()
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0


def test_a_pool_is_left_on_the_thread_that_entered_it(allocator: cachette_gpu.Allocator) -> None:
    pool = allocator.create_pool()
    caught: list[BaseException] = []

    def leave() -> None:
        try:
            pool.__exit__(None, None, None)
        except cachette_gpu.PoolError as why:
            caught.append(why)

    with pool:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
    assert "leave it on the thread that entered it" in str(caught[0])


def test_a_thread_may_end_inside_a_pool(allocator: cachette_gpu.Allocator) -> None:
    pool = allocator.create_pool()
    held: list[cachette_gpu.Allocation] = []

    def enter_and_end() -> None:
        pool.__enter__()
        held.append(allocator.allocate(512))

    thread = threading.Thread(target=enter_and_end)
    thread.start()
    thread.join()
    assert pool.stats()["allocations"] == 1
    held.clear()
    assert pool.stats()["allocations"] == 0


def test_a_source_that_is_not_there_says_what_was_tried(allocator: cachette_gpu.Allocator) -> None:
    with pytest.raises(cachette_gpu.Error):
        allocator.create_pool("nccl")
    with pytest.raises(cachette_gpu.Error, match="nccl"):
        allocator.create_pool("carrier pigeons")


def test_threads_share_an_allocator(allocator: cachette_gpu.Allocator) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            stream = allocator.create_stream()
            held: list[cachette_gpu.Allocation] = []
            for turn in range(2000):
                if len(held) > 20 or (held and (turn * seed) % 3 == 0):
                    held.pop((turn * 7) % len(held)).free()
                else:
                    held.append(allocator.allocate(1 + (turn * 131 * seed) % 300_000, stream))
            assert len({it.address for it in held}) == len(held)
        except BaseException as why:  # noqa: BLE001 - a thread cannot raise elsewhere
            failures.append(why)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert allocator.allocated_bytes == 0
