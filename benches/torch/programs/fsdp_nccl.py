"""FSDP2 shards a model over NCCL, with one rank: torchrun --nproc-per-node 1 fsdp_nccl.py."""

import program


def main():
    torch, options = program.begin()
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    network = program.model(torch).to(options.device)
    for layer in network:
        if list(layer.parameters()):
            fully_shard(layer)
    fully_shard(network)
    program.end(program.train(torch, network, options))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
