#!/usr/bin/env python3
"""Trains a small network by PyTorch's DistributedDataParallel, over clustar's plugin under NCCL or without a GPU.

    torchrun --nproc_per_node 2 examples/ddp.py --backend gloo --exchange direct

  --exchange allreduce   DDP as it is. With the plugin and a rule such as CLUSTAR_LOSS_RULES='func=allreduce,p=0.01' its
                         ring all-reduces may lose up to 1 % of each rank's data; nothing in this file changes for it.
  --exchange direct      a communication hook of 60 lines: every rank sends every other its part of the gradients, adds up
                         what came, and gathers the sums. A lost packet then costs one rank's contribution: the receiver
                         scales the others up, and the sender adds what was lost to its next gradient (a residual).
                         It has a communicator of its own, "dp-direct", and that alone opts in:

    export NCCL_NET_PLUGIN=/opt/clustar/lib/libnccl-net-clustar.so NCCL_NET=clustar CLUSTAR_TRANSPORT=mlt
    export CLUSTAR_LOSS_RULES='comm=dp-direct,func=sendrecv,p=0.01'
    export NCCL_NCHANNELS_PER_NET_PEER=1 NCCL_MAX_P2P_NCHANNELS=1   # so that a range of a transfer is one of the send
    torchrun --nnodes 2 --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint host0:29500 examples/ddp.py

With mpirun or srun set MASTER_ADDR and MASTER_PORT; rank and size are taken from their variables.

Run so far: --backend gloo with torchrun of PyTorch 1.13, on the CPU (tests/torch; under Python 3.11 that torchrun wants
--redirects 9:1 --tee 9:1). Not run: --backend nccl, for want of
a GPU; the name of a communicator needs a PyTorch whose ProcessGroupNCCL.Options has config.comm_name (NCCL 2.27)."""
import argparse
import os
import sys

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    print("SKIP: PyTorch is not installed (Debian: python3-torch)")
    sys.exit(77)

import clustar_api

NAME = "dp-direct"


def rank_and_size():
    """As torchrun, Open MPI or Slurm say it."""
    for rank, size in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    sys.exit("ddp.py: who am I? Start it by torchrun, mpirun or srun, or set RANK and WORLD_SIZE")


def named_group(backend):
    """A communicator of all ranks that a rule of CLUSTAR_LOSS_RULES can name."""
    if backend != "nccl":
        return dist.new_group()
    options = dist.ProcessGroupNCCL.Options()
    if hasattr(options, "config") and hasattr(options.config, "comm_name"):
        options.config.comm_name = NAME
    elif dist.get_rank() == 0:
        print("ddp.py: this PyTorch cannot name a communicator: no rule with comm= will fit, and nothing may be lost")
    return dist.new_group(pg_options=options)


class DirectExchange:
    """The hook's state. `find_api`: gives a clustar_api.Api or None; asked until the plugin is there."""

    def __init__(self, group, find_api=clustar_api.loaded):
        self.group, self.find_api, self.api, self.comm_id = group, find_api, None, None
        self.exchanges = 0       # so far; the same on all ranks
        self.sent = {}           # exchange -> (bucket, blocks as they went)
        self.residuals = {}      # bucket -> what others did not get of it
        self.rescaled = self.returned = 0  # elements, for the report

    def known(self):
        if self.api is None:
            self.api = self.find_api()
        if self.api is not None and self.comm_id is None:
            self.comm_id = self.api.comm_id(NAME)
        return self.comm_id is not None

    def missing(self, sender, block):
        if not self.known():
            return []
        return elements(self.api.missing_from(self.comm_id, sender, self.exchanges, block.numel() * block.element_size()), block)

    def collect_residual(self):
        """Of the exchange before the last: NCCL's sends end before the network has."""
        number = self.exchanges - 2
        bucket, blocks = self.sent.pop(number, (None, None))
        if blocks is None or not self.known():
            return
        me = dist.get_rank(self.group)
        for receiver, block in enumerate(blocks):
            if receiver == me:
                continue
            for part in elements(self.api.lost_to(self.comm_id, receiver, number, block.numel() * block.element_size()), block):
                residual = self.residuals.setdefault(bucket, torch.zeros_like(blocks))
                residual[receiver][part] += block[part]
                self.returned += part.stop - part.start


def elements(ranges, block):
    """Byte ranges as slices of whole elements: MLT's packets hold multiples of 8 bytes."""
    width = block.element_size()
    return [slice(first // width, -(-(first + count) // width)) for first, count in ranges]


def direct(state, bucket):
    """register_comm_hook's hook. Blocks, to be short; a hook that overlaps with backward returns a future of a stream's."""
    me, size = dist.get_rank(state.group), dist.get_world_size(state.group)
    gradient = bucket.buffer()
    each = -(-gradient.numel() // size)
    blocks = torch.zeros(size, each, dtype=gradient.dtype, device=gradient.device)
    blocks.view(-1)[:gradient.numel()] = gradient
    residual = state.residuals.pop(bucket.index(), None)
    if residual is not None and residual.shape == blocks.shape:  # DDP plans its buckets again after the first step
        blocks += residual
    inbox = torch.empty_like(blocks)
    inbox[me] = blocks[me]
    others = [rank for rank in range(size) if rank != me]
    transfers = [dist.P2POp(dist.isend, blocks[rank], rank, state.group) for rank in others]
    transfers += [dist.P2POp(dist.irecv, inbox[rank], rank, state.group) for rank in others]
    for transfer in dist.batch_isend_irecv(transfers):
        transfer.wait()
    if gradient.is_cuda:
        torch.cuda.current_stream().synchronize()  # what came is known when the stream has it
    came = torch.full_like(inbox[me], float(size))
    for rank in others:
        for part in state.missing(rank, inbox[rank]):
            came[part] -= 1
            state.rescaled += part.stop - part.start
    total = inbox.sum(0) / came  # the mean of what came: with nothing missing that of all ranks
    gathered = [torch.empty_like(total) for _ in range(size)]
    dist.all_gather(gathered, total, group=state.group)  # never loses, so all ranks have the same bits
    state.sent[state.exchanges] = (bucket.index(), blocks)
    state.exchanges += 1
    state.collect_residual()
    done = torch.futures.Future()
    done.set_result(torch.cat(gathered)[:gradient.numel()])
    return done


def examples_of(seed, count, features, classes):
    """Points around one centre per class: `count` x `features`, and `count` labels."""
    torch.manual_seed(seed)
    centres = torch.randn(classes, features)
    labels = torch.randint(classes, (count,))
    return centres[labels] + 1.5 * torch.randn(count, features), labels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--exchange", choices=("allreduce", "direct"), default="allreduce")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="examples of one rank in a step")
    parser.add_argument("--hidden", type=int, default=256)
    args = parser.parse_args()
    if args.backend == "nccl" and not torch.cuda.is_available():
        print("SKIP: --backend nccl needs a GPU; allowed without one: --backend gloo")
        sys.exit(77)
    rank, size = rank_and_size()
    dist.init_process_group(args.backend, rank=rank, world_size=size)
    device = torch.device("cuda", rank % torch.cuda.device_count()) if args.backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(64, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 10)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    state = None
    if args.exchange == "direct":
        state = DirectExchange(named_group(args.backend))
        model.register_comm_hook(state, direct)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, labels = examples_of(2, args.batch * args.steps * size, 64, 10)
    for step in range(args.steps):
        mine = slice((step * size + rank) * args.batch, (step * size + rank + 1) * args.batch)
        loss = torch.nn.functional.cross_entropy(model(x[mine].to(device)), labels[mine].to(device))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    parameters = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    replicas = [torch.empty_like(parameters) for _ in range(size)]
    dist.all_gather(replicas, parameters)
    same = all(torch.equal(replicas[0], other) for other in replicas)
    if rank == 0:
        print(f"replicas {'identical' if same else 'DIFFER'}; loss {loss.item():.4f}")
        if state is not None:
            print(f"{state.exchanges} exchanges; {state.rescaled} elements were missing here, {state.returned} of ours came back as residuals")
        api = clustar_api.loaded()
        print(f"clustar {api.version}: {api.totals().missing_bytes} bytes missing" if api else "clustar's plugin is not in this process")
    dist.destroy_process_group()
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
