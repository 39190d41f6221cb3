"""`clustar train --collective nccl`: NCCL's host code in every step, over tcp, mlt and mlt with loss.

usage: nccl_test.py --clustar PROGRAM [--data DIR] [--epochs N] [--name PART]
DIR: MNIST's files, else generated digits; PART: part of a case's name
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

NCCL_HOST = pathlib.Path(__file__).resolve().parents[1] / "nccl_host/nccl_host.py"

# NCCL's Simple protocol only: LL's chunks differ, and so does the order in which a sum is added up.
MLT = {"CLUSTAR_TRANSPORT": "mlt", "NCCL_PROTO": "Simple"}
CASES = {
    "tcp": ({"CLUSTAR_TRANSPORT": "tcp", "NCCL_PROTO": "Simple"}, []),
    "mlt": (MLT, []),
    "mlt-loss": ({**MLT, "CLUSTAR_LOSS_WARMUP": "0"}, ["--loss-tolerance", "0.01", "--inject-loss", "0.02"]),
}


def train(args, collective, environment, options, folder):
    """(exit status, what it said, results)"""
    out = pathlib.Path(folder) / f"{collective}.json"
    command = [sys.executable, "-B", NCCL_HOST, "--", args.clustar, "train", "--model", "mlp-small", "--ranks", "4",
               "--epochs", str(args.epochs), "--quiet", "--collective", collective, "--json", out, *options]
    command += ["--data", args.data] if args.data else ["--examples", "1000"]
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment}, capture_output=True,
                          text=True, check=False, timeout=280, errors="replace")
    results = json.loads(out.read_text())["results"] if out.exists() else None
    return done.returncode, done.stdout + done.stderr, results


def wrong(name, nccl, proxy):
    """Nothing, or what is wrong with a run by NCCL beside the same by the proxy."""
    if nccl["collective"] != "nccl" or not nccl["nccl"]["emulated"]:
        return f"not by NCCL on the emulated device: {nccl['nccl']}"
    if nccl["replicas_identical"] is not True or nccl["config"]["check_equal"] != "every":
        return "replicas differ"
    if not nccl["identified_messages"]:
        return "the plugin sent nothing that it identified"
    if name == "mlt-loss":
        if not 0 < nccl["missing_bytes"] <= 0.01 * nccl["eligible_bytes"]:
            return f"{nccl['missing_bytes']} bytes missing of {nccl['eligible_bytes']} eligible"
        if abs(nccl["loss"] - proxy["loss"]) > 0.1 * proxy["loss"]:
            return f"loss {nccl['loss']}, the proxy's {proxy['loss']}, which is more than 10 % apart"
        return ""
    for key in ("loss", "held_out_loss", "accuracy", "parameters_digest"):
        if nccl[key] != proxy[key]:
            return f"{key} is {nccl[key]}, the proxy's {proxy[key]}"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clustar", required=True)
    parser.add_argument("--data", default="")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--name", default="")
    args = parser.parse_args()
    ready = subprocess.run([sys.executable, "-B", NCCL_HOST], capture_output=True, text=True, check=False)
    if ready.returncode:
        print(ready.stderr.strip())
        return ready.returncode
    failed = 0
    for name, (environment, options) in CASES.items():
        if args.name not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            status, said, nccl = train(args, "nccl", environment, options, folder)
            proxy_status, proxy_said, proxy = train(args, "proxy", environment, options, folder)
        if status or proxy_status:
            problem = f"ended with {status}, the proxy's with {proxy_status}\n{said[-1500:]}{proxy_said[-1500:]}"
        else:
            problem = wrong(name, nccl, proxy)
            print(f"{name}: loss {nccl['loss']:.6f}, proxy {proxy['loss']:.6f}; accuracy {nccl['accuracy']:.4f}, "
                  f"{proxy['accuracy']:.4f}; {nccl['steps']} steps, digest {nccl['parameters_digest']}, "
                  f"{proxy['parameters_digest']}; missing {nccl['missing_bytes']} of {nccl['eligible_bytes']}")
        if problem:
            print(f"FAILED {name}: {problem}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
