#!/usr/bin/env python3
"""Stands in for nccl-check where there is no GPU: same options, files and log lines; FAKE_MODE plays a failure."""

import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser()
for option in ("--rank", "--size", "--max", "--deadline"):
    parser.add_argument(option, type=int)
parser.add_argument("--idfile")
parser.add_argument("--json")
options = parser.parse_args()
mode = os.environ.get("FAKE_MODE", "ok")
plugin, wanted = os.environ["NCCL_NET_PLUGIN"], os.environ["NCCL_NET"]

if options.rank == 0:
    with open(options.idfile, "w", encoding="utf-8") as stream:
        stream.write("id")
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
for channel in range(2):
    print(f"host:1:1 [0] NCCL INFO Channel 0{channel}/0 : 0[0] -> 1[0] [send] via NET/{network}/0")
if mode == "crash" and options.rank == 0:
    os.abort()

results = []
for collective, factor in (("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)):
    for kind in ("int32", "float32"):
        correct = not (mode == "wrong" and options.rank == 1 and collective == "all_gather")
        row = {"collective": collective, "type": kind, "bytes": options.max, "correct": correct, "wrong_elements": 0,
               "iterations": 4, "time_us": 100.0, "algbw_gbytes_per_s": 1.0, "busbw_gbytes_per_s": factor / 2}
        if not correct:
            row["first_wrong"] = "element 3 is 0x00000000, expected 0x00000001"
        results.append(row)
if "NETLOG_FILE" in os.environ and mode != "no_trace":
    with open(os.environ["NETLOG_FILE"], "w", encoding="utf-8") as stream:
        stream.write("time_ns,thread,call,object,request,tag,bytes,result,op,algo,proto\n")
        for index in range(3):
            stream.write(f"{index},7,isend,0x1,0x2,{options.rank},1048576,0,AllReduce,Ring,Simple\n")
            stream.write(f"{index},7,test,(nil),0x2,-,1048576,0,AllReduce,Ring,Simple\n")
        stream.write("9,7,isend,0x1,0x2,0,5")  # cut, as a killed process leaves it
with open(options.json, "w", encoding="utf-8") as stream:
    json.dump({"rank": options.rank, "size": options.size, "results": results}, stream)
sys.exit(1 if mode == "wrong" else 0)
