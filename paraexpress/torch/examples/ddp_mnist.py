#!/usr/bin/env python3
"""Trains a small network on MNIST with DistributedDataParallel. Only the name of the backend tells clustar from gloo.

    MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 RANK=0 WORLD_SIZE=2 ddp_mnist.py --backend clustar --data FOLDER

FOLDER has MNIST's files in IDX form, .gz or not; without the training files those of the test set are taken, split.
Rank 0 prints how it went; with --json each rank prints a line of JSON: losses and seconds of the steps, accuracy.
"""

import argparse
import gzip
import json
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read_idx(path):
    opened = gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb")
    with opened as file:
        zeros, kind, dimensions = struct.unpack(">HBB", file.read(4))
        if zeros or kind != 8:
            raise ValueError(f"{path} is no IDX file of bytes")
        shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(shape)


def load(folder):
    """Images and labels to train with and to test with."""
    def pair(name):
        return (read_idx(f"{folder}/{name}-images-idx3-ubyte").float().div(255).sub(0.1307).div(0.3081).flatten(1),
                read_idx(f"{folder}/{name}-labels-idx1-ubyte").long())
    images, labels = pair("t10k")
    names = os.listdir(folder)
    if any(name.startswith("train-images") for name in names):
        return pair("train"), (images, labels)
    return (images[:8000], labels[:8000]), (images[8000:], labels[8000:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="clustar", choices=["clustar", "gloo"])
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
    parser.add_argument("--width", type=int, default=512, help="of the two hidden layers")
    parser.add_argument("--codec", choices=["top-k", "one-bit"], help="a communication hook of clustar_torch.hooks")
    parser.add_argument("--json", action="store_true", help="every step's loss and seconds, a line of each rank")
    options = parser.parse_args()
    if options.backend == "clustar" or options.codec:
        try:
            import clustar_torch  # registers the backend
        except ModuleNotFoundError:
            sys.exit("ddp_mnist: no module clustar_torch; PYTHONPATH=build/release/lib/python finds the one that was built")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    try:
        (images, labels), (test_images, test_labels) = load(options.data)
    except OSError as error:
        parser.error(f"--data: {error.filename}: {error.strerror}; allowed: a folder with MNIST's files in IDX form")
    dist.init_process_group(options.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    width = options.width
    net = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model = DistributedDataParallel(net)
    if options.codec:
        codec = clustar_torch.hooks.TopK(0.01) if options.codec == "top-k" else clustar_torch.hooks.OneBit()
        clustar_torch.hooks.register(model, codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(2))
    losses, seconds = [], []
    for step in range(options.steps):
        begin = time.perf_counter()
        first = (step * ranks + rank) * options.batch
        batch = order[torch.arange(first, first + options.batch) % len(order)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        if rank == 0 and not options.json and (step + 1) % max(1, options.steps // 10) == 0:
            print(f"step {step + 1} of {options.steps}: loss {loss.item():.3f}", flush=True)
    with torch.no_grad():
        right = (net(test_images).argmax(1) == test_labels).float().mean().item()
    if options.json:
        print(json.dumps({"rank": rank, "losses": losses, "seconds": seconds, "accuracy": right}), flush=True)
    elif rank == 0:
        median = sorted(seconds)[len(seconds) // 2]
        print(f"{options.backend}, {ranks} ranks: {100 * right:.1f} % right, {1000 * median:.1f} ms a step (median)", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
