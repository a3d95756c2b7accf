"""Two ranks on one GPU average gradients over gloo: torchrun --nproc-per-node 2 ddp_gloo.py."""

import program


def main():
    torch, options = program.begin()
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    network = DistributedDataParallel(program.model(torch).to(options.device))
    program.end(program.train(torch, network, options, dist.get_rank()), dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
