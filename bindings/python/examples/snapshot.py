"""A snapshot of the memory of a training.

    python3 snapshot.py
    cachette snapshot view training.pickle -o training.html
"""

import cachette_gpu.torch

cachette_gpu.torch.enable()  # before CUDA is initialised

import torch  # noqa: E402 - PyTorch may be imported earlier, but no GPU used

torch.cuda.memory._record_memory_history(max_entries=200_000)  # PyTorch's own name; record_memory_history is the same

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    cachette_gpu.torch.set_memory_metadata("forward")
    batch = torch.randn(64 + 32 * step, 1024, device="cuda")
    loss = torch.nn.functional.mse_loss(model(batch), batch)
    cachette_gpu.torch.set_memory_metadata("backward")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    cachette_gpu.torch.set_memory_metadata("update")
    optimizer.step()

torch.cuda.memory._dump_snapshot("training.pickle")  # for https://pytorch.org/memory_viz, and for `cachette snapshot`
taken = cachette_gpu.torch.snapshot()
events = [event for trace in taken["device_traces"] for event in trace]
print(f"{len(taken['segments'])} segments, {len(events)} events, written to training.pickle")
for phase in ("forward", "backward", "update"):
    asked = sum(event["size"] for event in events if event["action"] == "alloc" and event["user_metadata"] == phase)
    print(f"{phase:>8}: {asked / 2**20:8.1f} MiB asked for")
