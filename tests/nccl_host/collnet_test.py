"""All-reduces by the plugin's collective network, driven by NCCL's host code: all bits compared, and NCCL's log says that
CollNet carried them; where NCCL cannot use it, that it did not, and why.

usage: collnet_test.py [--name PART] [--plugin DIR]
PART: part of a case's name; DIR: where the plugin is
"""

import argparse
import os
import re
import sys

import at_once
import evidence
import nccl_host

AT_ONCE = 4
CALLS = 2
CARRIED = re.compile(r"\[(?:send|receive)\] via COLLNET/clustar")
CHAIN, BOTH = "CollNetChain", "CollNetChain,Ring"
GPU = {"CLUSTAR_GDR_EMULATE": "1", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_GDR_READ": "1"}  # host memory plays the GPU's
GPU_ENDS = re.compile(r"\[(send|receive)\] via COLLNET/clustar/0/GDRDMA")
LOSSY = {"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_INJECT_FAULTS": "loss=0.02", "CLUSTAR_LOSS_RULES": "func=allreduce,p=0.01",
         "CLUSTAR_LOSS_WARMUP": "0"}


def run(ranks, options, algorithms, extra=()):
    environment = {**os.environ, "NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": algorithms, "NCCL_PROTO": "Simple", "NCCL_NET": "clustar",
                   "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING", **dict(extra)}
    return nccl_host.run(["nccl-host-perf", "-g", ranks, "-n", CALLS, "-T", 100, *options.split()], environment)


def wrong(done, ranks, algorithm):
    """Nothing, or what is wrong with a run whose bits should be right, by that algorithm."""
    if done.returncode or "# checked: 0 wrong" not in done.stdout:
        return f"ended with {done.returncode}"
    seen = evidence.Evidence(done.stdout)
    chosen = {choice[1] for choice in seen.chosen}
    if ranks > 1 and algorithm and chosen != {algorithm}:
        return f"NCCL chose {sorted(chosen)}, not {algorithm}"
    carried = len(CARRIED.findall(done.stdout))
    if (algorithm == "COLLNET_CHAIN") and carried < 2 * ranks:
        return f"{carried} ends of a collective network, not two on each of {ranks} ranks or more"
    return ""


def all_right(ranks, options, extra):
    done = run(ranks, options, CHAIN, extra)
    found = wrong(done, ranks, "COLLNET_CHAIN")
    seen = evidence.Evidence(done.stdout)
    if not found and seen.missing_bytes:
        found = f"{seen.missing_bytes} bytes are missing: nothing of a collective network may be lost"
    return found and f"{found}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def all_right_on_gpus(ranks, options, extra):
    """NCCL's buffers are in GPU memory, and it knows."""
    done = run(ranks, options, CHAIN, {**GPU, **extra})
    found = wrong(done, ranks, "COLLNET_CHAIN")
    ends = set(GPU_ENDS.findall(done.stdout))
    if not found and ends != {"send", "receive"}:
        found = f"ends of the network in GPU memory: {sorted(ends)}, not both"
    return found and f"{found}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def by_the_tuner(ranks, options):
    """It chooses at each size; all ranks must choose alike, or they would hang."""
    done = run(ranks, options, BOTH)
    found = wrong(done, ranks, None)
    if not found and "the planner takes it to be faster than a ring for all-reduces of" not in done.stdout:
        found = "the log says nothing of the planner"
    return found and f"{found}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def ring_instead(ranks, options, extra, because):
    """NCCL takes the ring, and the log says why."""
    done = run(ranks, options, BOTH, extra)
    found = wrong(done, ranks, "RING")
    if not found and because not in done.stdout:
        found = f"'{because}' is not in the log"
    return found and f"{found}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def untouched():
    """Without NCCL_COLLNET_ENABLE nothing of it is there but a line of NCCL's that the table was found."""
    done = run(2, "-b 1M", "Ring", {"NCCL_COLLNET_ENABLE": "0"})
    found = wrong(done, 2, "RING")
    lines = [line for line in done.stdout.splitlines() if "collnet" in line.lower()]
    odd = [line for line in lines if "COLLNET/" in line or "CollNet is" in line or "CollNet:" in line]
    return found or "\n".join(odd)


def scenario(words, extra=()):
    environment = {**os.environ, "NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": CHAIN, "NCCL_PROTO": "Simple", "NCCL_NET": "clustar",
                   **dict(extra)}
    done = nccl_host.run(["nccl-host-scenarios", *words.split()], environment)
    return "" if done.returncode == 0 else f"ended with {done.returncode}\n{done.stdout[-1500:]}"


CASES = {
    "float-2": (all_right, 2, "-b 8 -e 4M -f 64", {}),
    "huge-2": (all_right, 2, "-b 33554436", {}),
    "half-avg-3-mlt": (all_right, 3, "-d half -o avg -b 512K", {"CLUSTAR_TRANSPORT": "mlt"}),
    "bfloat16-max-4-lossy": (all_right, 4, "-d bfloat16 -o max -b 1M", LOSSY),
    "int8-8": (all_right, 8, "-d int8 -b 1 -e 64K -f 256", {}),
    "double-premulsum-3": (all_right, 3, "-d double -o premulsum -b 1M", {}),
    "uint64-max-2": (all_right, 2, "-d uint64 -o max -b 100008", {}),
    "int32-avg-5": (all_right, 5, "-d int32 -o avg -b 256K", {}),
    "tuner-4": (by_the_tuner, 4, "-b 8 -e 1M -f 8"),
    "prod": (ring_instead, 2, "-o prod -b 64K", {}, "CollNet is offered"),
    "all-gather": (ring_instead, 2, "-C all_gather -b 64K", {}, "CollNet is offered"),
    "one-node": (ring_instead, 1, "-b 64K", {}, "less than CollNet node threshold"),
    "gpu-2": (all_right_on_gpus, 2, "-b 8 -e 4M -f 64", {}),
    "gpu-half-avg-4-mlt": (all_right_on_gpus, 4, "-d half -o avg -b 512K", {"CLUSTAR_TRANSPORT": "mlt"}),
    "gpu-abort": (scenario, "abort -g 3", GPU),
    "gpu-kill": (scenario, "kill -g 3 -n 2", GPU),
    "switched-off": (ring_instead, 2, "-b 64K", {"CLUSTAR_COLLNET": "off"}, "collnet = off (environment)"),
    "untouched": (untouched,),
    "kill": (scenario, "kill -g 3 -n 2"),
    "abort": (scenario, "abort -g 3"),
    "split": (scenario, "split -g 4"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="")
    parser.add_argument("--plugin", default="")
    args = parser.parse_args()
    status = nccl_host.made_ready(args.plugin)
    return status or at_once.run({name: what for name, what in CASES.items() if args.name in name}, AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
