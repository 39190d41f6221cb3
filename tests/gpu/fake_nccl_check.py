#!/usr/bin/env python3
"""Stands in for nccl-check where there is no GPU: same options, files and log lines; FAKE_MODE plays a failure."""

import argparse
import collections
import json
import os
import sys
import time

import fake_ring
import fake_training

FACTORS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
FUNCTIONS = {"all_reduce": "AllReduce", "reduce_scatter": "ReduceScatter", "all_gather": "AllGather"}


def parse():
    parser = argparse.ArgumentParser()
    for option in ("--rank", "--size", "--min", "--max", "--iterations", "--split", "--graph", "--train", "--deadline"):
        parser.add_argument(option, type=int)
    parser.add_argument("--idfile")
    parser.add_argument("--json")
    return parser.parse_args()


def write_log(options, mode):
    plugin, wanted = os.environ["NCCL_NET_PLUGIN"], os.environ["NCCL_NET"]
    print("host:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0")
    if mode == "hang" and options.rank == 1:
        time.sleep(600)
    network = wanted
    if plugin.startswith("/nonexistent"):
        if mode != "silent_fallback":
            sys.exit("nccl-check: while joining the communicator: ncclCommInitRankConfig: invalid usage")
        network = "Socket"
    elif wanted == "CLUSTAR":
        network = "Socket" if mode == "other_network" else "CLUSTAR"
        print(f"host:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin {network} (v11)")
    print(f"host:1:1 [0] NCCL INFO Using network {network}")
    if "NCCL_PROFILER_PLUGIN" in os.environ and not (mode == "no_profiler" and options.rank == 1):
        print("host:1:1 [0] NCCL INFO PROFILER/Plugin: Loaded CLUSTAR (v5)")
    if "NCCL_TUNER_PLUGIN" in os.environ:
        print("host:1:1 [0] NCCL INFO TUNER/Plugin: Using CLUSTAR (v5)")
    staged = os.environ.get("CLUSTAR_GDR") == "staged" and not (mode == "host_memory" and options.rank == 1)
    for channel in range(2):
        print(f"host:1:1 [0] NCCL INFO Channel 0{channel}/0 : 0[0] -> 1[0] [send] via NET/{network}/0"
              f"{'/GDRDMA' if staged else ''}")
    if os.environ.get("NCCL_COLLNET_ENABLE") == "1":
        write_collnet(mode, staged)


def write_collnet(mode, staged):
    if mode == "collnet_absent":
        return
    if mode == "no_collnet":  # NCCL has no other algorithm for its all-reduce
        print("host:1:1 [0] NCCL INFO NET/clustar: CollNet is not offered: eth0 reaches GPU memory")
        sys.exit("nccl-check: all_reduce: internal error")
    for kind in ("receive", "send"):
        gpu = staged and not (mode == "collnet_half" and kind == "send")
        print(f"host:1:1 [0] NCCL INFO CollNet 00/0 : 0 [{kind}] via COLLNET/clustar/0{'/GDRDMA' if gpu else ''}")
    for size in (8, 64):
        algorithm = "RING" if mode == "collnet_ring" and size == 8 else "COLLNET_CHAIN"
        print(f"host:1:1 [0] NCCL INFO AllReduce: {size} Bytes -> Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..1}}")
    print("host:1:1 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}")


def communicators(options):
    """(name, id, rank, ranks) in the order in which nccl-check uses them."""
    world = ("world", f"{0xa:016x}", options.rank, options.size)
    if not options.split:
        return [world]
    color = options.rank % 2 if options.size >= 3 else 0
    members = [rank for rank in range(options.size) if options.size < 3 or rank % 2 == color]
    child = (members.index(options.rank), len(members))
    return [world, ("split", f"{0xb0 + color:016x}", *child), ("copy", f"{0xc:016x}", options.rank, options.size),
            ("shared-split", f"{0xd0 + color:016x}", *child)]


def run(options, mode):
    """(results, rows of the shim)"""
    results, rows = [], []
    numbers = collections.Counter()
    if options.train:
        row = fake_training.row(options.train, options.max, options.size, ",p=0.0" in os.environ["CLUSTAR_LOSS_RULES"])
        if mode == "diverge" and options.rank == 1:
            row["training"]["steps"][4]["parameters"] = "another"
        return [row], rows
    for name, comm, rank, ranks in communicators(options):
        for collective, factor in FACTORS.items():
            if options.graph and collective == "all_gather":
                continue
            for kind in ("int32", "float32"):
                correct = not (mode == "wrong" and options.rank == 1 and collective == "all_gather")
                size = options.max // 4 // ranks * 4 * ranks
                iterations = 0 if options.graph else options.iterations or 4
                result = {"collective": collective, "type": kind, "bytes": size, "correct": correct,
                          "wrong_elements": 0, "communicator": name, "ranks": ranks, "iterations": iterations,
                          "time_us": 125.0 if "NCCL_NET_FORCE_FLUSH" in os.environ else 100.0, "algbw_gbytes_per_s": 1.0, "busbw_gbytes_per_s": factor / 2}
                if not correct:
                    result["first_wrong"] = "element 3 is 0x00000000, expected 0x00000001"
                results.append(result)
                function = FUNCTIONS[collective]
                total = size // ranks if function == "AllGather" else size
                for _ in range(options.graph or iterations + 1) if ranks > 1 else ():
                    rows += fake_ring.sends(function, total, rank, ranks, numbers[comm, function], comm,
                                            bool(options.graph))
                    numbers[comm, function] += 1
    return results, rows


def main():
    options = parse()
    mode = os.environ.get("FAKE_MODE", "ok")
    if options.rank == 0:
        with open(options.idfile, "w", encoding="utf-8") as stream:
            stream.write("id")
    write_log(options, mode)
    if mode == "crash" and options.rank == 0:
        os.abort()
    results, rows = run(options, mode)
    if mode == "gap" and options.rank == 1:
        del rows[3]
    if mode == "ll128":
        rows[0]["proto"] = rows[0]["coll_proto"] = "LL128"
    if "NETLOG_FILE" in os.environ and mode != "no_trace":
        fake_ring.write(os.environ["NETLOG_FILE"], rows)
    with open(options.json, "w", encoding="utf-8") as stream:
        json.dump({"rank": options.rank, "size": options.size, "results": results}, stream)
    sys.exit(1 if mode == "wrong" else 0)


main()
