"""Sleep: memory goes back to the device, and tensors are where and what they were."""

import gpu
from gpu import MiB

pytestmark = gpu.MARKS

#: Addresses and memory must be apart, so these run in processes of their own with elastic segments.
ELASTIC = "expandable_segments:True"


def test_tensors_keep_addresses_and_contents() -> None:
    gpu.run("""
import torch, cachette_gpu.torch
torch.manual_seed(0)
pool = cachette_gpu.torch.Pool()
with pool:
    weights = [torch.randn(64 << 20, device="cuda") for _ in range(3)]
copies = [tensor.cpu() for tensor in weights]
addresses = [tensor.data_ptr() for tensor in weights]
for tries in range(20):
    before, _ = torch.cuda.mem_get_info()
    seen = []
    slept = pool.sleep(progress=lambda done, total: seen.append((done, total)))
    asleep, _ = torch.cuda.mem_get_info()
    assert slept["saved"] >= 3 * (256 << 20) and slept["released"] >= slept["saved"], slept
    if asleep >= before + 3 * (250 << 20):
        break
    # Another process may have taken memory meanwhile.
    pool.wake()
else:
    raise AssertionError((before, asleep))
assert pool.is_asleep and seen[-1][0] == seen[-1][1]
others = torch.ones(256 << 20, dtype=torch.uint8, device="cuda")
assert int(others.sum()) == 256 << 20
assert pool.wake() == slept["released"] and not pool.is_asleep
assert [tensor.data_ptr() for tensor in weights] == addresses
for tensor, copy in zip(weights, copies):
    assert torch.equal(tensor.cpu(), copy)
cachette_gpu.torch.release_contents()
""", ELASTIC)


def test_contents_may_be_dropped_and_tags_join_pools() -> None:
    gpu.run("""
import torch, cachette_gpu.torch
pools = [cachette_gpu.torch.Pool(tag="cache") for _ in range(2)]
tensors = []
for pool in pools:
    with pool:
        tensors.append(torch.ones(64 << 20, device="cuda"))
slept = cachette_gpu.torch.sleep("cache", keep=False)
assert slept["saved"] == 0 and slept["released"] >= 2 * (256 << 20), slept
assert all(pool.is_asleep for pool in pools)
cachette_gpu.torch.wake("cache")
for tensor in tensors:
    tensor.fill_(3)
    assert bool((tensor == 3).all())
""", ELASTIC)


def test_requests_to_a_pool_that_sleeps_are_refused() -> None:
    gpu.run("""
import torch, cachette_gpu.torch
pool = cachette_gpu.torch.Pool()
with pool:
    held = torch.ones(32 << 20, device="cuda")
pool.sleep()
try:
    with pool:
        torch.ones(1 << 20, device="cuda")
except RuntimeError as why:
    assert "wake it first" in str(why), why
else:
    raise AssertionError("it served")
pool.wake()
with pool:
    assert float(torch.ones(1 << 20, device="cuda").sum()) == 1 << 20
assert float(held.sum()) == 32 << 20
""", ELASTIC)


def test_a_graph_that_was_captured_in_the_pool_replays_after_it_woke() -> None:
    gpu.run("""
import torch, cachette_gpu.torch
pool = cachette_gpu.torch.Pool()
with pool:
    given = torch.zeros(8 << 20, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, pool=pool.id):
    between = given * 2
    result = between + 1
for value in (3.0, 5.0):
    given.fill_(value)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 2 * value + 1).all())
    assert pool.sleep()["released"] > 0 and pool.is_asleep
    pool.wake()
    assert bool((given == value).all()) and bool((result == 2 * value + 1).all())
given.fill_(7)
graph.replay()
torch.cuda.synchronize()
assert bool((result == 15).all())
""", ELASTIC)


def test_a_model_sleeps_between_two_steps() -> None:
    gpu.run("""
import torch, cachette_gpu.torch
torch.manual_seed(0)
pool = cachette_gpu.torch.Pool()
with pool:
    model = torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048)).cuda()
batch = torch.randn(64, 2048, device="cuda")
with torch.no_grad():
    expected = model(batch).clone()
    for _ in range(3):
        pool.sleep()
        pool.wake()
        assert torch.equal(model(batch), expected)
""", ELASTIC)


def test_without_elastic_segments_it_says_what_to_set() -> None:
    gpu.run(f"""
import torch, cachette_gpu, cachette_gpu.torch
pool = cachette_gpu.torch.Pool()
with pool:
    held = torch.ones({32 * MiB}, device="cuda")
try:
    pool.sleep()
except cachette_gpu.Error as why:
    assert "expandable_segments:True" in str(why), why
else:
    raise AssertionError("it slept")
assert bool((held == 1).all())
""", "expandable_segments:False")


if __name__ == "__main__":
    gpu.main(globals())
