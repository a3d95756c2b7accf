"""Tensors in memory that NCCL can register, in a `MemPool` of the compiled class.

    python3 nccl_pool.py                                # one process
    torchrun --nproc-per-node 2 nccl_pool.py            # one for each GPU
"""

import os

import torch
import torch.distributed as dist

import cachette_gpu.torch

cachette_gpu.torch.enable(compiled=True)

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
torch.cuda.set_device(device)
store = dist.HashStore() if ranks == 1 else None
dist.init_process_group("nccl", store=store, rank=rank, world_size=ranks, device_id=device)

backend = dist.distributed_c10d._get_default_group()._get_backend(device)
pool = torch.cuda.MemPool(backend.mem_allocator)    # segments from ncclMemAlloc, cached by Cachette
with torch.cuda.use_mem_pool(pool):
    gradients = torch.ones(64 << 20, device=device)

backend.register_mem_pool(pool)                     # NCCL then needs no copies
dist.all_reduce(gradients)
torch.cuda.synchronize()
print(f"rank {rank}: {gradients[0].item():.0f} of {ranks}")

backend.deregister_mem_pool(pool)
del gradients, pool
torch.cuda.empty_cache()
dist.destroy_process_group()
