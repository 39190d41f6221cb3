"""NCCL's collectives over the plugin: transports x collectives x datatypes x operators, all bits compared.

usage: matrix_test.py [--name PART] [--every] [--plugin DIR]
PART: part of a case's name; --every: transports x collectives x datatypes, many minutes; DIR: where the plugin is
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SKIP = 77

TRANSPORTS = {
    "tcp": {"CLUSTAR_TRANSPORT": "tcp"},
    "mlt": {"CLUSTAR_TRANSPORT": "mlt"},
    "mlt-loss": {"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_INJECT_FAULTS": "loss=0.01"},
    "tcp-gdr": {"CLUSTAR_TRANSPORT": "tcp", "CLUSTAR_GDR_EMULATE": "1"},
}
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "sendrecv")
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16")
OPERATORS = ("sum", "prod", "max", "min", "avg", "premulsum")
PROTOCOLS = ("LL", "Simple")
RANKS = (2, 4)


def cases(every):
    """(name, ranks, protocol, transport, collective, type, operator). By default each value of each list occurs."""
    if every:
        number = 0
        for transport in TRANSPORTS:
            for collective in COLLECTIVES:
                for kind in TYPES:
                    # The other lists turn along; their lengths share no factor with what they turn by.
                    yield (RANKS[number % 2], PROTOCOLS[number // 2 % 2], transport, collective, kind,
                           OPERATORS[(number + number // 6) % 6])
                    number += 1
        return
    for number in range(24):
        # The transport moves on each time, the collective by one more each round of transports.
        yield (RANKS[number // 3 % 2], PROTOCOLS[number // 4 % 2], list(TRANSPORTS)[number % 4],
               COLLECTIVES[(number + number // 12) % 6], TYPES[number % 10], OPERATORS[(number + number // 6) % 6])


def run(case, extra=()):
    ranks, protocol, transport, collective, kind, operator = case
    environment = {**os.environ, "NCCL_PROTO": protocol, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET",
                   **TRANSPORTS[transport], **dict(extra)}
    command = [sys.executable, "-B", HERE / "nccl_host.py", "--", "nccl-host-perf", "-g", str(ranks), "-C", collective,
               "-d", kind, "-o", operator, "-b", "8", "-e", "512K", "-f", "256", "-T", "30"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, errors="replace")


def verdict(done):
    """Nothing, or what is wrong with a run that should be right."""
    if done.returncode:
        return f"ended with {done.returncode}"
    if "# checked: 0 wrong" not in done.stdout:
        return "no check of the results in the output"
    # A quiet fall back to NCCL's own sockets would pass every check of bits.
    if "NET/clustar" not in done.stdout and "Using network clustar" not in done.stdout:
        return "the plugin was not used"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--plugin", default="")
    args = parser.parse_args()
    if args.plugin:
        os.environ["LD_LIBRARY_PATH"] = f"{args.plugin}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    ready = subprocess.run([sys.executable, "-B", HERE / "nccl_host.py"], capture_output=True, text=True, check=False)
    if ready.returncode:
        print(ready.stderr.strip())
        return ready.returncode
    failed = passed = 0
    begin = time.monotonic()
    for case in cases(args.every):
        name = "-".join(map(str, case))
        if args.name not in name:
            continue
        done = run(case)
        wrong = verdict(done)
        passed += not wrong
        failed += bool(wrong)
        if wrong:
            print(f"FAILED {name}: {wrong}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    # The check itself: with the reduction taken out it must fail, and by wrong bits.
    for protocol in PROTOCOLS:
        done = run((2, protocol, "tcp", "all_reduce", "float", "sum"), {"NCCL_HOST_WITHOUT_REDUCTION": "1"})
        if done.returncode != 1 or " wrong" not in done.stdout or "# checked: 0 wrong" in done.stdout:
            print(f"FAILED without reduction, {protocol}: the check did not see it (status {done.returncode})")
            failed += 1
    print(f"{passed} passed, {failed} failed in {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
