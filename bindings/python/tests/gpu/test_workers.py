"""Processes: workers, forks and ends."""

import gpu

pytestmark = gpu.MARKS


def test_a_process_may_end_with_live_tensors() -> None:
    gpu.run("""
import torch
held = [torch.empty(1 << 20, device="cuda") for _ in range(20)]
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    torch.cuda._sleep(100_000_000)
    held[0].add_(1)
held[0].record_stream(side)
held.append(held)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = torch.ones(10, device="cuda") + 1
""")


def test_a_forked_child_ends_without_harm() -> None:
    output = gpu.run("""
import os, torch
held = [torch.ones(1 << 20, device="cuda") for _ in range(3)]
torch.cuda.synchronize()
child = os.fork()
if child == 0:
    held.clear()
    try:
        torch.empty(1 << 20, device="cuda")
    except RuntimeError as why:
        os._exit(0 if "spawn" in str(why) else 2)
    os._exit(3)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert float(held[2].sum()) == 1 << 20
print("parent is whole")
""")
    assert output == "parent is whole\n"


def test_devices_may_be_used_after_a_fork_that_came_first() -> None:
    gpu.run("""
import os, torch
child = os.fork()
if child == 0:
    os._exit(0 if float(torch.ones(1 << 20, device="cuda").sum()) == 1 << 20 else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
""")


def test_workers_that_were_forked_load_data() -> None:
    gpu.run("""
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.zeros(1, device="cuda")
data = TensorDataset(torch.arange(256.0))
total = 0.0
for (batch,) in DataLoader(data, batch_size=16, num_workers=2, pin_memory=True):
    total += float(batch.to("cuda", non_blocking=True).sum())
assert total == sum(range(256)), total
""")


def test_enabling_after_the_first_tensor_is_refused() -> None:
    gpu.run("""
import torch
torch.zeros(1, device="cuda")
import cachette_gpu.torch
try:
    cachette_gpu.torch.enable()
except cachette_gpu.torch.EnableError as why:
    assert "before the first use of a GPU" in str(why)
else:
    raise AssertionError
assert torch.cuda.get_allocator_backend() == "native"
""", None)


def test_a_child_of_a_process_that_used_a_gpu_is_told_to_spawn() -> None:
    gpu.run("""
import os, torch
torch.zeros(1, device="cuda")
child = os.fork()
if child == 0:
    import cachette_gpu.torch
    try:
        cachette_gpu.torch.enable()
    except cachette_gpu.torch.EnableError as why:
        os._exit(0 if "'spawn'" in str(why) else 1)
    os._exit(2)
_, status = os.waitpid(child, 0)
assert status == 0, status
""", None)


if __name__ == "__main__":
    gpu.main(globals())
