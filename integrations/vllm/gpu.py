"""Cachette's sleep backend behind vLLM's own factory, with PyTorch on a GPU: memory and contents over two levels."""

import types

import torch

import cachette_gpu.vllm

cachette_gpu.vllm.register()

from vllm import device_allocator  # noqa: E402
from vllm.device_allocator.sleep_mode_backend import CuMemBackend, SleepModeBackendFactory  # noqa: E402

ours = SleepModeBackendFactory.create_backend(types.SimpleNamespace(sleep_mode_backend="cachette"))
memory = device_allocator.get_mem_allocator_instance()
assert memory.get_current_usage() == 0
MIB = 1 << 20
tensors = {}
for tag, size in (("weights", 512), ("kv_cache", 1024), ("runtime", 64)):
    with memory.use_memory_pool(tag=tag):
        tensors[tag] = torch.empty(size * MIB // 4, device="cuda")

# A graph whose memory sleeps, as vLLM captures it.
step = torch.zeros(1 * MIB, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        torch.relu(tensors["runtime"][: 1 * MIB] + step).sum()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with memory.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):
    result = torch.relu(tensors["runtime"][: 1 * MIB] + step).sum()


def write():
    for number, tensor in enumerate(tensors.values()):
        tensor.fill_(number + 1.5)


def kept():
    return {tag for number, (tag, tensor) in enumerate(tensors.items()) if bool((tensor == number + 1.5).all())}


def used():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB


for level in (1, 2):
    for backend in (CuMemBackend(), ours):
        write()
        graph.replay()
        expected, awake = float(result), used()
        backend.suspend(level)
        asleep = used()
        assert asleep <= awake - 1590, (awake, asleep)
        backend.resume(["weights"])
        backend.resume(["kv_cache"])
        backend.resume()
        assert kept() == {"runtime"} | ({"weights"} if level == 1 else set()), (level, backend, kept())
        result.zero_()
        graph.replay()
        assert float(result) == expected
        print(f"{type(backend).__name__}, level {level}: {awake:.0f} MiB awake, {asleep:.0f} asleep, {used():.0f} after")
write()
before = used()
ours.discard(("kv_cache",))
assert used() <= before - 1020
ours.resume()
assert kept() == {"weights", "runtime"}
print("contents, graphs and memory are as vLLM asks")
