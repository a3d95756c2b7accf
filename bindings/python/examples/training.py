"""A small training on memory of Cachette: python3 training.py."""

import cachette_gpu.torch

cachette_gpu.torch.enable()  # before CUDA is initialised

import torch  # noqa: E402 - PyTorch may be imported earlier, but no GPU used

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(100):
    batch = torch.randn(64 + 8 * (step % 17), 1024, device="cuda")
    loss = torch.nn.functional.mse_loss(model(batch), batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()

print(f"loss {loss.item():.4f}")
print(f"peak: {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB in tensors, "
      f"{torch.cuda.max_memory_reserved() / 2**20:.1f} MiB from the device")
print(torch.cuda.memory_summary(abbreviated=True))
