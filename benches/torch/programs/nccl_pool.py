"""Gradients in a pool that is registered with NCCL, with one rank: torchrun --nproc-per-node 1 nccl_pool.py."""

import program


def main():
    torch, options = program.begin()
    import torch.distributed as dist

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    backend = dist.distributed_c10d._get_default_group()._get_backend(device)
    network = program.model(torch).to(device)
    # NCCL's own function allocates the memory, as in PyTorch's documentation; not every machine supports that.
    try:
        pool = torch.cuda.MemPool(backend.mem_allocator)
    except RuntimeError:
        pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        flat = torch.zeros(sum(weights.numel() for weights in network.parameters()), device=device)
    backend.register_mem_pool(pool)

    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    losses = []
    for step in range(options.steps):
        inputs, labels = program.batch(torch, step, device)
        loss = torch.nn.functional.cross_entropy(network(inputs), labels)
        loss.backward()
        torch.cat([weights.grad.flatten() for weights in network.parameters()], out=flat)
        dist.all_reduce(flat)
        at = 0
        for weights in network.parameters():
            weights.grad.copy_(flat[at:at + weights.numel()].view_as(weights))
            at += weights.numel()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)
    program.end(losses)
    del flat, pool
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
