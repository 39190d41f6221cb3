#!/usr/bin/env python3
"""Times ddp_mnist.py with gloo and with clustar in turn, on hosts of `clustar fabric`. Needs root.

    PYTHONPATH=build/release/lib/python compare_backends.py --clustar build/release/bin/clustar --data FOLDER
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ddp_mnist.py")
NETWORKS = {  # arguments of `clustar fabric up`, of `set`, and what clustar's transport is
    "200M": (["--rate", "200M"], [], "tcp"),
    "1G": (["--rate", "1G"], [], "tcp"),
    "200M-loss": (["--rate", "200M"], ["--loss", "1%"], "mlt"),
    "1G-loss": (["--rate", "1G"], ["--loss", "1%"], "mlt"),
}


def train(options, name, backend, transport, port):
    """All ranks' results."""
    environment = {**os.environ, "MASTER_ADDR": "10.88.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(options.hosts),
                   "GLOO_SOCKET_IFNAME": "eth0", "CLUSTAR_SOCKET_IFNAME": "eth0", "CLUSTAR_TRANSPORT": transport,
                   "OMP_NUM_THREADS": "1"}
    built = os.path.join(os.path.dirname(os.path.abspath(options.clustar)), "..", "lib", "python")
    environment.setdefault("PYTHONPATH", built)
    ranks = [subprocess.Popen([options.clustar, "fabric", "exec", "--name", name, str(rank), "--", options.python, EXAMPLE,
                               "--json", "--backend", backend, "--data", options.data, "--steps", str(options.steps),
                               "--batch", str(options.batch), "--width", str(options.width)],
                              env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
             for rank in range(options.hosts)]
    results = []
    for rank in ranks:
        said, _ = rank.communicate(timeout=600)
        if rank.returncode:
            sys.exit(f"a rank with {backend} ended with {rank.returncode}")
        results.append(json.loads(said.strip().splitlines()[-1]))
    return results


def step_of(results):
    """Median seconds of a step, without the first ones; a step ends when the last rank's does."""
    steps = [max(times) for times in zip(*(one["seconds"] for one in results))]
    return statistics.median(steps[5:])


def compare(options, network, port):
    up, rules, transport = NETWORKS[network]
    name = "torch-compare"
    fabric = [options.clustar, "fabric"]
    subprocess.run(fabric + ["down", "--name", name], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(fabric + ["up", "--name", name, "--hosts", str(options.hosts)] + up, check=True, stdout=subprocess.DEVNULL)
    try:
        if rules:
            subprocess.run(fabric + ["set", "--name", name] + rules, check=True, stdout=subprocess.DEVNULL)
        rounds, difference = [], 0.0
        for number in range(options.rounds):
            found = {}
            order = ["gloo", "clustar"] if number % 2 == 0 else ["clustar", "gloo"]
            for backend in order:
                port += 1
                found[backend] = train(options, name, backend, transport, port)
            for ours, theirs in zip(found["clustar"], found["gloo"]):
                difference = max([difference] + [abs(a - b) / b for a, b in zip(ours["losses"], theirs["losses"])])
            rounds.append((step_of(found["gloo"]), step_of(found["clustar"])))
            print(f"{network} round {number}: gloo {rounds[-1][0] * 1e3:.1f} ms, clustar {rounds[-1][1] * 1e3:.1f} ms, "
                  f"ratio {rounds[-1][0] / rounds[-1][1]:.2f}", flush=True)
    finally:
        subprocess.run(fabric + ["down", "--name", name], check=False, stdout=subprocess.DEVNULL)
    ratios = sorted(gloo / clustar for gloo, clustar in rounds)
    print(f"{network} over {transport}: gloo {statistics.median(r[0] for r in rounds) * 1e3:.1f} ms, clustar "
          f"{statistics.median(r[1] for r in rounds) * 1e3:.1f} ms a step; ratio {statistics.median(ratios):.2f} "
          f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {len(ratios)} rounds); losses differ by {difference:.1e} at most",
          flush=True)
    return port


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clustar", required=True, help="the command")
    parser.add_argument("--data", required=True, help="folder with MNIST's files")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    port = random.Random(os.getpid()).randrange(20000, 28000)
    for network in options.networks.split(","):
        port = compare(options, network, port)


if __name__ == "__main__":
    main()
