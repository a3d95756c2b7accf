"""A bug that changes data once in a while, and the report of the sanitizer: python3 missing_record_stream.py."""

import torch

import cachette_gpu.torch

cachette_gpu.torch.enable()

side = torch.cuda.Stream()
with cachette_gpu.torch.sanitize() as sanitizer:
    batch = torch.ones(1024, 1024, device="cuda")

    # The side stream reads the batch; it waits until the batch is written.
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        doubled = batch * 2

    # The batch is freed for the current stream, which does not wait for the side stream.
    # Here `batch.record_stream(side)` is missing.
    del batch

    # The same memory, so these zeros may be written before the side stream has read the ones.
    zeros = torch.zeros(1024, 1024, device="cuda")

torch.cuda.synchronize()
print(f"{sanitizer.count} finding; without the bug the sum is {2 * 1024 * 1024}: {doubled.sum().item():.0f}")
