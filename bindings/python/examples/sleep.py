"""Two models that take turns on one GPU: while one works, the other sleeps. python3 sleep.py."""

import cachette_gpu.torch

cachette_gpu.torch.enable()  # sleep needs elastic segments, the default

import torch  # noqa: E402 - PyTorch may be imported earlier, but no GPU used


def free() -> str:
    return f"{torch.cuda.mem_get_info()[0] / 2**30:.2f} GiB free"


def build(pool):
    """A model whose weights lie in a pool."""
    with pool:
        return torch.nn.Sequential(*[torch.nn.Linear(8192, 8192) for _ in range(4)]).cuda()


generation, training = cachette_gpu.torch.Pool(tag="generation"), cachette_gpu.torch.Pool(tag="training")
writer, learner = build(generation), build(training)
batch = torch.randn(16, 8192, device="cuda")
with torch.no_grad():
    before = writer(batch)

print(f"both awake:  {free()}")
slept = cachette_gpu.torch.sleep("generation")  # or generation.sleep()
print(f"one asleep:  {free()}; {slept['saved'] / 2**20:.0f} MiB kept in host memory")
learner(batch).square().mean().backward()  # uses the whole device

training.sleep(keep=False)  # its weights are not needed again
generation.wake(progress=lambda done, total: print(f"waking:      {done / total:4.0%}", end="\r"))
print(f"other asleep: {free()}")
with torch.no_grad():
    assert torch.equal(writer(batch), before)
print("the weights have the same addresses and values")
