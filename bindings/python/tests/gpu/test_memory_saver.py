"""The calls of torch_memory_saver, on a GPU; docs/memory_saver.md says how its own examples end."""

import gpu

pytestmark = gpu.MARKS

IMPORT = """
import os, tempfile, torch
from cachette_gpu.memory_saver import torch_memory_saver as saver
def used():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free
"""


def test_regions_pause_and_resume_by_tag_and_contents_are_kept_where_asked() -> None:
    gpu.run(IMPORT + """
with saver.region("weights", enable_cpu_backup=True):
    weights = torch.randn(64 << 20, device="cuda")
with saver.region("cache"):
    cache = torch.ones(128 << 20, device="cuda")
copy, places, before = weights.cpu(), (weights.data_ptr(), cache.data_ptr()), used()
assert saver.get_cpu_backup(weights) is None
saver.pause("cache")
middle = used()
assert before - middle >= 480 << 20 and torch.equal(weights.cpu(), copy)
slept = saver.pause()
assert slept["left"]["outside"] > 0 and sum(slept["left"]["by_label"].values()) < 64 << 20, slept
assert slept["saved"] >= 256 << 20 and middle - used() >= 240 << 20, (slept, before, middle, used())
assert torch.equal(saver.get_cpu_backup(weights), copy)
with saver.region("cache"):
    more = torch.full((8 << 20,), 2.0, device="cuda")   # a paused region takes new memory
saver.resume("weights"); saver.resume()
assert torch.equal(weights.cpu(), copy) and (weights.data_ptr(), cache.data_ptr()) == places
cache.fill_(1)
assert bool((more == 2).all()) and bool((cache == 1).all())
""")


def test_contents_go_to_files_and_the_memory_of_graphs_pauses() -> None:
    gpu.run(IMPORT + """
folder = tempfile.mkdtemp()
saver.set_disk_backup_dir(folder)
with saver.region("weights", enable_disk_backup=True):
    weights = torch.randn(64 << 20, device="cuda")
copy = weights.cpu()
given = torch.ones(16 << 20, device="cuda")
graph, shared, other = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph"):
    result = given * 2 + weights[: 16 << 20]
with saver.cuda_graph(other, pool=shared, tag="graph"):
    second = given * 3
third = torch.cuda.CUDAGraph()
with saver.cuda_graph(third, pool=torch.cuda.graph_pool_handle(), tag="other"):
    fourth = given * 4
with saver.region("other"):   # a tag that only a graph had
    beside = torch.ones(8 << 20, device="cuda")
graph.replay(); other.replay()
expected, before = (2 + copy[: 16 << 20]), used()
assert torch.equal(result.cpu(), expected)
saver.pause()
assert before - used() >= 300 << 20
saver.resume()
graph.replay(); other.replay()
assert torch.equal(weights.cpu(), copy) and torch.equal(result.cpu(), expected) and bool((second == 3).all())
os.rmdir(folder)
""")


def test_nothing_grows_over_a_hundred_cycles() -> None:
    gpu.run(IMPORT + """
import cachette_gpu.torch
import torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0))
with saver.region("weights", enable_cpu_backup=True):
    weights = torch.randn(16 << 20, device="cuda")
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph"):
    total = weights.sum()
def cycle():
    saver.pause(); saver.resume(); graph.replay()
    dist.all_reduce(weights)
    torch.cuda.synchronize()
    return used(), cachette_gpu.torch.memory_reserved()
for _ in range(3):
    first = cycle()
figures = {cycle() for _ in range(100)}
assert figures == {first}, (first, figures)
dist.destroy_process_group()
""")


def test_communicators_are_suspended_where_nccl_can() -> None:
    gpu.run(IMPORT + """
import cachette_gpu
import torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0))
with saver.region("weights", enable_cpu_backup=True):
    weights = torch.ones(16 << 20, device="cuda")
dist.all_reduce(weights)
try:
    saver.suspends_nccl = True
except cachette_gpu.Error as why:
    assert "use NCCL 2.29.7 or later" in str(why), why
else:
    for _ in range(5):
        before = used()
        saver.pause()
        assert len(saver._suspended) == 1 and used() < before
        saver.resume()
        dist.all_reduce(weights)
    assert not saver._suspended and bool((weights == 1).all())
dist.destroy_process_group()
""")


def test_all_memory_of_a_process_pauses_if_it_asks_for_that() -> None:
    gpu.run(IMPORT + """
def work():
    tensor = torch.full((64 << 20,), 4.0, device="cuda")
    small = [torch.ones(1000, device="cuda") for number in range(100)]
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for number in range(8)]).cuda()
    assert bool((tensor == 4).all())
    return tensor, small, model
# The context, with the kernels of this work.
kept = work()
del kept
torch.cuda.empty_cache()
context = used()
tensor, small, model = work()
before = used()
left = saver.pause()["left"]
assert before - used() >= 700 << 20
assert used() - context <= 64 << 20, (used() - context, left)
with saver.disable():
    inside = torch.ones(64 << 20, device="cuda")
    assert float(inside.sum()) == 64 << 20
    del inside
saver.resume()
assert bool((tensor == 4).all()) and all(bool((it == 1).all()) for it in small)
""", TMS_INIT_ENABLE="1", TMS_INIT_ENABLE_CPU_BACKUP="1")


if __name__ == "__main__":
    gpu.main(globals())
