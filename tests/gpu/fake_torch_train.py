#!/usr/bin/env python3
"""Stands in for torch_train.py where there is no GPU: the same options, files and log lines."""

import argparse
import json
import os
import sys

parser = argparse.ArgumentParser()
for option in ("--rank", "--size", "--idfile", "--min", "--max", "--deadline", "--json"):
    parser.add_argument(option)
options = parser.parse_args()
mode = os.environ.get("FAKE_MODE", "ok")
if mode == "no_torch":
    print("SKIP: no PyTorch here: No module named 'torch'")
    sys.exit(77)
network = os.environ["NCCL_NET"]
lossy = "CLUSTAR_LOSS_RULES" in os.environ
print(f"host:1:1 [0] NCCL INFO Using network {network}")
if network == "CLUSTAR":
    print("host:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin CLUSTAR (v11)")
    print("host:1:1 [0] NCCL INFO PROFILER/Plugin: Loaded CLUSTAR (v5)\nhost:1:1 [0] NCCL INFO TUNER/Plugin: Using CLUSTAR (v5)")
digest = "lossy" if lossy else "other" if mode == "torch_other" and network == "CLUSTAR" else "exact"
totals = {"delivered_bytes": 1 << 20, "missing_bytes": 7 if lossy else 0, "eligible_bytes": 700 if lossy else 0,
          "sent_messages": 9, "identified_messages": 9, "tolerant_messages": 0}
with open(options.json, "w", encoding="utf-8") as stream:
    json.dump({"rank": int(options.rank), "size": int(options.size), "torch": "2.11", "steps": 20, "results": [],
               "totals": totals if network == "CLUSTAR" else None,
               "trained": [{"mode": kind, "losses": [1.0, 0.5], "digest": digest, "bytes": 33574912, "type": "float32",
                            "step_s": 0.03} for kind in ("ddp", "fsdp")]}, stream)
