"""Pools of Cachette, and `MemPool` with the compiled class."""

import gc
import threading

import gpu
from gpu import MiB

pytestmark = gpu.MARKS


def test_p4_a_pool_serves_the_thread_that_entered_it() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    pool = cachette_gpu.torch.Pool()
    outside = torch.empty(MiB, device="cuda")
    elsewhere = []
    with pool:
        inside = torch.full((MiB,), 3.0, device="cuda")
        thread = threading.Thread(target=lambda: elsewhere.append(torch.empty(MiB, device="cuda")))
        thread.start()
        thread.join()
    assert pool.stats()["allocations"] == 1
    assert pool.stats()["allocated_bytes"] == 4 * MiB
    assert len({inside.data_ptr(), outside.data_ptr(), elsewhere[0].data_ptr()}) == 3
    assert bool((inside == 3).all())
    del inside
    assert pool.stats()["allocations"] == 0
    pool.release()
    gc.collect()


def test_a_pool_of_ncclmemalloc_serves_tensors() -> None:
    torch = gpu.enabled()
    import cachette_gpu.torch

    if torch.version.hip is not None:
        return
    pool = cachette_gpu.torch.Pool("nccl")
    with pool:
        memory = torch.arange(MiB, dtype=torch.float32, device="cuda")
    assert pool.stats()["reserved_bytes"] >= 4 * MiB
    assert float(memory[-1]) == MiB - 1
    del memory
    pool.release()


#: Registers a pool of NCCL's memory, and reduces in it.
REDUCE = """
import torch, torch.distributed as dist
device = torch.device("cuda:0")
torch.cuda.set_device(device)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
backend = dist.distributed_c10d._get_default_group()._get_backend(device)
try:
    allocator = backend.mem_allocator
except RuntimeError as error:
    # PyTorch was built for another version of NCCL.
    assert "not supported" in str(error), error
    dist.destroy_process_group()
    print("lacking")
    raise SystemExit
pool = torch.cuda.MemPool(allocator)
with torch.cuda.use_mem_pool(pool):
    memory = torch.arange(1 << 20, dtype=torch.float32, device=device)
backend.register_mem_pool(pool)
dist.all_reduce(memory)
torch.cuda.synchronize()
assert float(memory[-1]) == (1 << 20) - 1
backend.deregister_mem_pool(pool)
del memory, pool
torch.cuda.empty_cache()
dist.destroy_process_group()
print("reduced")
"""


def test_nccl_registers_a_pool_of_the_compiled_class() -> None:
    torch = gpu.enabled()
    if torch.version.hip is None:
        output = gpu.run(REDUCE, compiled=True, NCCL_SOCKET_IFNAME="lo")
        assert output.endswith(("reduced\n", "lacking\n"))


if __name__ == "__main__":
    gpu.main(globals())
