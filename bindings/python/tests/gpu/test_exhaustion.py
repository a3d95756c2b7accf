"""Out of memory: PyTorch's exception, with the figures, and life goes on."""

import gpu
from gpu import MiB

pytestmark = gpu.MARKS


def test_m19_it_is_pytorchs_exception_with_the_figures() -> None:
    torch = gpu.enabled()
    total = torch.cuda.mem_get_info()[1]
    with gpu.raises(torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate", "GPU 0 has a total capacity of", "GiB",
                    "is allocated by PyTorch", "Cachette: "):
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    assert float(torch.ones(MiB, device="cuda").sum()) == MiB


def test_s3_more_than_any_device_has() -> None:
    torch = gpu.enabled()
    with gpu.raises(torch.OutOfMemoryError, "more than 1EB memory"):
        torch.empty(1 << 61, dtype=torch.uint8, device="cuda")


def test_m18_observers_are_told() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    seen: list[tuple[int, ...]] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: seen.append(figures))
    cachette_gpu.torch.attach_out_of_memory_observer(lambda *figures: seen.append(figures))
    total = torch.cuda.mem_get_info()[1]
    ooms = torch.cuda.memory_stats()["num_ooms"]
    with gpu.raises(torch.OutOfMemoryError):
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_stats()["num_ooms"] == ooms + 1
    assert len(seen) == 2 and seen[0] == seen[1]
    device, asked, capacity, free = seen[0]
    assert device == torch.cuda.current_device()
    assert asked >= 2 * total
    assert 0 < free < capacity


def test_unused_memory_gives_way_before_a_request_fails() -> None:
    torch = gpu.enabled()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 300 * MiB) / total)
    try:
        pieces = [torch.empty(30 * MiB, dtype=torch.uint8, device="cuda") for _ in range(8)]
        pieces.clear()
        whole = torch.empty(250 * MiB, dtype=torch.uint8, device="cuda")
        assert whole.numel() == 250 * MiB
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_memory_of_other_streams_is_waited_for_before_a_request_fails() -> None:
    torch = gpu.enabled()
    total = torch.cuda.mem_get_info()[1]
    side = torch.cuda.Stream()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 400 * MiB) / total)
    try:
        for _ in range(20):
            memory = torch.ones(160 * MiB, dtype=torch.uint8, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(5_000_000)
                memory.add_(1)
            memory.record_stream(side)
            del memory
    finally:
        torch.cuda.synchronize()
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_exhaustion_inside_a_capture_is_the_same_exception() -> None:
    torch = gpu.enabled()
    total = torch.cuda.mem_get_info()[1]
    with gpu.raises(torch.OutOfMemoryError):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    del graph
    assert float(torch.ones(10, device="cuda").sum()) == 10


if __name__ == "__main__":
    gpu.main(globals())
