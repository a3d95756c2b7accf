"""A model whose layers need 1.5 times the memory that it may hold. python3 eviction.py."""

import cachette_gpu.torch

cachette_gpu.torch.enable("memory_limit:2GiB")

import torch  # noqa: E402 - PyTorch may be imported earlier, but no GPU used

layers = []
for _ in range(12):  # 256 MiB each; the last ones evict the first ones
    pool = cachette_gpu.torch.Pool(priority=0)
    with pool:
        layers.append((pool, torch.nn.Linear(8192, 8192, bias=False, device="cuda")))

batch = torch.randn(16, 8192, device="cuda")
with torch.no_grad():
    for _ in range(3):
        for pool, layer in layers:
            with pool.make_resident():  # wakes it, and evicts those that were used least recently
                batch = torch.tanh(layer(batch))
torch.cuda.synchronize()
print(f"{len(layers)} layers took turns in {torch.cuda.memory_reserved() >> 20} MiB")
