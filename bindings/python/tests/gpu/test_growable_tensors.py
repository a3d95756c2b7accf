"""Growable tensors: their memory comes and goes, and graphs that use them stay valid."""

import gpu
from gpu import MiB

pytestmark = gpu.MARKS


def test_a_graph_stays_valid_while_the_memory_of_its_tensor_comes_and_goes() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    rows, row = 4096, MiB // 4  # a row is 1 MiB
    cache = cachette_gpu.torch.growable((rows, row), torch.float32)
    tensor = cache.tensor
    assert tensor.shape == (rows, row) and tensor.dtype == torch.float32 and tensor.is_cuda
    before = torch.cuda.memory_allocated()
    cache.commit(slice(0, 64))
    assert cache.committed_bytes == 64 * MiB == torch.cuda.memory_allocated() - before
    tensor[:64].fill_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor[:64].add_(1)
    address = tensor.data_ptr()
    for _ in range(5):
        cache.commit(slice(64, 512))
        tensor[64:512].fill_(7)
        graph.replay()
        assert bool((tensor[64:512] == 7).all())
        cache.decommit(range(64, 512))
        other = torch.full((64 * MiB,), 3.0, device="cuda")
        graph.replay()
        assert bool((other == 3).all())
        del other
    assert bool((tensor[:64] == 11).all()) and tensor.data_ptr() == address
    with gpu.raises(ValueError, "is committed already"):
        cache.commit(slice(0, 1))
    with gpu.raises(ValueError, "is no range of the 4096 rows"):
        cache.commit(range(0, 5000))
    with gpu.raises(ValueError, "is not committed"):
        cache.decommit(slice(0, 65))


def test_other_streams_and_types_are_recorded_and_seen() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    cache = cachette_gpu.torch.growable((16, MiB), torch.bfloat16)
    cache.commit(slice(0, 16))
    cache.tensor.fill_(2)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        total = cache.tensor.float().sum()
    cache.record_stream(side)
    cache.decommit(slice(0, 16))
    other = torch.zeros(16 * MiB, dtype=torch.bfloat16, device="cuda").fill_(9)
    torch.cuda.synchronize()
    assert float(total) == 2 * 16 * MiB and float(other[0]) == 9


def test_the_memory_sleeps_with_its_pool() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    pool = cachette_gpu.torch.Pool()
    cache = cachette_gpu.torch.growable((8, MiB), pool=pool)
    cache.commit(slice(2, 6))
    cache.tensor[2:6].fill_(5)
    slept = pool.sleep()
    assert slept["saved"] == 16 * MiB, slept
    with gpu.raises(cachette_gpu.PoolError, "wake it first"):
        cache.commit(slice(0, 1))
    pool.wake()
    assert bool((cache.tensor[2:6] == 5).all())


if __name__ == "__main__":
    gpu.main(globals())
