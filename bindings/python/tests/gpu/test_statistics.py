"""The figures: what PyTorch's own functions say, and what PyTorch's own allocator would have said."""

import gpu
from gpu import MiB

pytestmark = gpu.MARKS

#: Allocates and frees, and prints the statistics.
PROGRAM = """
import json, torch
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
before = torch.cuda.memory_stats()
held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in
        (1, 511, 513, 100_000, 1 << 20, (1 << 20) + 1, 5 << 20, 10 << 20, 11_000_000, 64 << 20)]
del held[1::2]
held += [torch.empty(300_000, dtype=torch.uint8, device="cuda") for _ in range(9)]
after = torch.cuda.memory_stats()
print(json.dumps({key: after[key] - before[key] for key in before}))
"""


def test_the_functions_of_pytorch_answer() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch as ours

    before = torch.cuda.memory_allocated()
    memory = torch.empty(3 * MiB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == ours.memory_allocated() == before + 3 * MiB
    assert torch.cuda.memory_reserved() == ours.memory_reserved() >= before + 3 * MiB
    theirs, own = torch.cuda.memory_stats(), ours.memory_stats()
    assert theirs == {key: own[key] for key in theirs}
    assert theirs == torch.cuda.memory_stats(0) == torch.cuda.memory_stats("cuda:0")
    assert own == ours.memory_stats(torch.device("cuda"))
    del memory
    assert torch.cuda.max_memory_allocated() == ours.max_memory_allocated() >= before + 3 * MiB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    assert "Allocated memory" in torch.cuda.memory_summary()
    assert "allocated_bytes" in ours.memory_summary()
    assert torch.cuda.get_allocator_backend() == ("cachette" if gpu.COMPILED else "pluggable")


def test_t1_the_figures_are_those_of_pytorchs_allocator() -> None:
    native, ours = gpu.run_json(PROGRAM, None), gpu.run_json(PROGRAM, "expandable_segments:False")
    for array in ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes", "segment",
                  "reserved_bytes"):
        for kind in ("all", "small_pool", "large_pool"):
            for figure in ("current", "allocated", "freed"):
                key = f"{array}.{kind}.{figure}"
                assert ours[key] == native[key], f"{key}: {ours[key]} here, {native[key]} there"
    assert set(native) <= set(ours), set(native) - set(ours)


def test_empty_cache_gives_memory_back_to_the_device() -> None:
    torch = gpu.enabled()
    memory = torch.empty(512 * MiB, dtype=torch.uint8, device="cuda")
    held, _ = torch.cuda.mem_get_info()
    del memory
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    # Elastic segments give back what the stream has passed when next looked at.
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    given_back, total = torch.cuda.mem_get_info()
    assert given_back >= held + 500 * MiB
    import cachette_gpu.torch

    assert cachette_gpu.torch.mem_get_info() == (given_back, total)


def test_m15_the_fraction_bounds_what_is_held() -> None:
    torch = gpu.enabled()
    total = torch.cuda.mem_get_info()[1]
    assert torch.cuda.get_per_process_memory_fraction() == 1.0
    share = (torch.cuda.memory_reserved() + 64 * MiB) / total
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        assert abs(torch.cuda.get_per_process_memory_fraction() - share) < 1e-6
        with gpu.raises(torch.OutOfMemoryError, "out of memory"):
            torch.empty(128 * MiB, dtype=torch.uint8, device="cuda")
        torch.empty(16 * MiB, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(128 * MiB, dtype=torch.uint8, device="cuda")


def test_memory_by_address_is_pytorchs_too() -> None:
    torch = gpu.enabled()
    before = torch.cuda.memory_allocated()
    address = torch.cuda.caching_allocator_alloc(MiB)
    assert torch.cuda.memory_allocated() == before + MiB
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == before


if __name__ == "__main__":
    gpu.main(globals())
