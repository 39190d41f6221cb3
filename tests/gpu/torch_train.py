#!/usr/bin/env python3
"""One rank of unmodified PyTorch training over NCCL: DDP, and FSDP where torch has it. scripts/gpu-check starts the
ranks (cases torch-*); what every rank ends with goes to --json, where ranks and networks can be compared.

Exit status: 0 trained, 1 failed, 2 wrong usage, 77 no PyTorch or no GPU here.
"""

import argparse
import ctypes
import hashlib
import json
import os
import signal
import sys
import time

SKIP = 77
WIDTHS = (1024, 2048, 2048, 1024)
BATCH = 128


def parse():
    parser = argparse.ArgumentParser(prog="torch_train.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--idfile", required=True, help="a file that all ranks see, for torch's FileStore")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: on the CPU, for tests")
    parser.add_argument("--deadline", type=int, default=100, metavar="SECONDS")
    parser.add_argument("--json", required=True)
    parser.add_argument("--min", help=argparse.SUPPRESS)  # gpu-check gives every rank program its sizes
    parser.add_argument("--max", help=argparse.SUPPRESS)
    return parser.parse_args()


class Totals(ctypes.Structure):
    """clustarTotals_v1 of nccl_plugin/clustar.h."""
    NAMES = ("delivered_bytes", "missing_bytes", "eligible_bytes", "sent_messages", "identified_messages",
             "tolerant_messages")
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in NAMES]


class Api(ctypes.Structure):
    """The head of clustarApi_v1."""
    _fields_ = [("size", ctypes.c_size_t), ("version", ctypes.c_char_p),
                ("get_totals", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Totals)))]


def plugin_totals():
    """What the plugin counted in this process, from the copy that NCCL loaded; None where NCCL took another network."""
    path = os.environ.get("NCCL_NET_PLUGIN", "none")
    if path == "none":
        return None
    library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    totals = Totals(size=ctypes.sizeof(Totals))
    status = Api.in_dll(library, "clustarApi_v1").get_totals(ctypes.byref(totals))
    if status != 0:
        raise RuntimeError(f"clustarApi_v1.getTotals answered {status}")
    return {name: getattr(totals, name) for name in Totals.NAMES}


def wrappers(torch):
    """Name and function that makes a model of this process one of all ranks."""
    found = {"ddp": torch.nn.parallel.DistributedDataParallel}
    if not torch.cuda.is_available():
        return found  # FSDP's collectives are NCCL's; gloo has not all of them
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # before torch 2.6
        return found

    def shard(model):
        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer)
        return fully_shard(model)
    return {**found, "fsdp": shard}


def digest(model):
    """Of all parameters, whole, bit for bit."""
    whole = hashlib.sha256()
    for parameter in model.parameters():
        value = parameter.detach()
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        whole.update(value.cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()[:16]


def train(torch, options, wrap, device):
    torch.manual_seed(1)
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.GELU()]
    plain = torch.nn.Sequential(*layers[:-1]).to(device)
    gradient_bytes = sum(parameter.numel() * 4 for parameter in plain.parameters())
    teacher = torch.randn(WIDTHS[0], WIDTHS[-1]).to(device) / WIDTHS[0] ** 0.5
    # Each rank has examples of its own; the same in every run.
    torch.manual_seed(100 + options.rank)
    inputs = torch.randn(options.steps, BATCH, WIDTHS[0]).to(device)
    model = wrap(plain)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses, seconds = [], []
    for batch in inputs:
        start = time.monotonic()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), batch @ teacher)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())  # waits for the step
        seconds.append(time.monotonic() - start)
    return {"losses": [losses[0], losses[-1]], "digest": digest(model), "bytes": gradient_bytes, "type": "float32",
            "step_s": sorted(seconds)[len(seconds) // 2]}


def main():
    options = parse()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a hang leaves a status, whatever holds the interpreter
    signal.alarm(options.deadline)
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print(f"SKIP: no PyTorch here: {error}")
        sys.exit(SKIP)
    if options.backend == "nccl" and not torch.cuda.is_available():
        print("SKIP: PyTorch finds no GPU here")
        sys.exit(SKIP)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda", 0) if options.backend == "nccl" else torch.device("cpu")
    dist.init_process_group(options.backend, init_method=f"file://{options.idfile}.torch", rank=options.rank,
                            world_size=options.size)
    results = []
    for name, wrap in wrappers(torch).items():
        results.append({"mode": name, **train(torch, options, wrap, device)})
    totals = plugin_totals() if options.backend == "nccl" else None
    document = {"rank": options.rank, "size": options.size, "torch": torch.__version__, "steps": options.steps,
                "totals": totals, "trained": results, "results": []}
    with open(options.json, "w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)
    dist.destroy_process_group()
    print(f"rank {options.rank}: " + ", ".join(f"{row['mode']}: loss {row['losses'][0]:.4f} to {row['losses'][1]:.4f}"
                                               for row in results))


if __name__ == "__main__":
    main()
