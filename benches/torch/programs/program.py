"""What the programs share: the allocator of the process, a small model and its data, and the line of losses."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import measured  # noqa: E402

#: Steps of each program: enough for buffers, graphs and caches to be used again.
STEPS = 12


def begin():
    """PyTorch with the allocator that the command line names (as in `train_gpt2.py`), seeded and deterministic."""
    options = measured.arguments("A program whose losses must not depend on the allocator.", steps=STEPS)
    torch = measured.switch(options.allocator, options.device)
    measured.seed(torch, options.seed)
    return torch, options


def model(torch, width=256):
    """A small network, the same in every process."""
    return torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.LayerNorm(width), torch.nn.GELU(),
                               torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 8))


def batch(torch, step, device, rank=0):
    """Inputs and labels of a step; their number changes from step to step, so that memory is cut anew."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    rows = 64 + 32 * (step % 3)
    inputs = torch.randn(rows, 64, generator=generator)
    return inputs.to(device), inputs[:, :8].argmax(dim=1).to(device)


def train(torch, network, options, rank=0):
    """The losses of a few steps."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    losses = []
    for step in range(options.steps):
        inputs, labels = batch(torch, step, options.device, rank)
        loss = torch.nn.functional.cross_entropy(network(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def end(losses, rank=0):
    """Prints the losses, with every bit."""
    print(json.dumps({"rank": rank, "losses": [float(loss).hex() for loss in losses]}), flush=True)
