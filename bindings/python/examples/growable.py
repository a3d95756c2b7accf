"""A KV cache that gets its size after the graphs were captured, and gives half of it back. python3 growable.py."""

import cachette_gpu.torch

cachette_gpu.torch.enable()

import torch  # noqa: E402 - PyTorch may be imported earlier, but no GPU used

BLOCK = 1 << 20
cache = cachette_gpu.torch.growable((64 << 10, BLOCK), torch.uint8)  # addresses for 64 GiB
cache.commit(slice(0, 64))
cache.tensor[:64].zero_()
torch.cuda.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    cache.tensor[:64].add_(1)

blocks = torch.cuda.mem_get_info()[0] // 2 // BLOCK  # now the program knows what the graph needs
cache.commit(slice(64, blocks))
print(f"the graph is captured: {cache.committed_bytes >> 30} GiB of cache")

cache.decommit(slice(blocks // 2, blocks))  # another model needs memory
model = torch.ones(blocks // 4 * BLOCK, dtype=torch.uint8, device="cuda")
graph.replay()
torch.cuda.synchronize()
assert int(cache.tensor[63, -1]) == 1
print(f"the graph is still valid; the cache has {cache.committed_bytes >> 30} GiB")
