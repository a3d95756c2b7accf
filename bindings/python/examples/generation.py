"""A cache that grows token by token, and a captured graph, on memory of Cachette: python3 generation.py."""

import cachette_gpu.torch

cachette_gpu.torch.enable()

import torch  # noqa: E402

HEADS, WIDTH, ROWS = 16, 64, 8
query, key, value = (torch.nn.Linear(HEADS * WIDTH, HEADS * WIDTH, device="cuda") for _ in range(3))


def attend(token, keys, values):
    """One step of attention; the cache grows by one position."""
    def split(it):
        return it.view(ROWS, 1, HEADS, WIDTH).transpose(1, 2)

    keys = torch.cat([keys, split(key(token))], dim=2)
    values = torch.cat([values, split(value(token))], dim=2)
    mixed = torch.nn.functional.scaled_dot_product_attention(split(query(token)), keys, values)
    return mixed.transpose(1, 2).reshape(ROWS, HEADS * WIDTH), keys, values


with torch.inference_mode():
    token = torch.randn(ROWS, HEADS * WIDTH, device="cuda")
    keys = values = torch.empty(ROWS, HEADS, 0, WIDTH, device="cuda")
    for _ in range(500):
        token, keys, values = attend(token, keys, values)
    held, peak = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    print(f"{keys.shape[2]} positions; {held / peak:.3f} times the peak of tensors was reserved")

    # The memory of a captured graph is in a separate pool, at fixed addresses.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again, _, _ = attend(token, keys, values)
    graph.replay()
    torch.cuda.synchronize()
    print(f"replayed: {again.float().norm().item():.4f}")
