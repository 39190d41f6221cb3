"""NCCL's host code over RDMA verbs: RC over RoCE v2 in a virtual machine (SoftRoCE).

usage: softroce_test.py --plugin DIR [--all]
--all: every collective, a minute or two; DIR: where the plugin and its modules are
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ONE, BOTH = "rxe_a", "rxe_a,rxe_b"
# Devices, ranks, protocol, collective, datatype, operator, bytes; the processor is emulated, so few and small ones.
CASES = ((BOTH, "2", "Simple", "all_reduce", "float", "sum", "256K"), (ONE, "2", "LL", "all_gather", "int8", "sum", "1K"))
MORE = ((ONE, "3", "Simple", "reduce_scatter", "half", "avg", "64K"), (BOTH, "2", "Simple", "broadcast", "double", "sum", "1M"),
        (ONE, "2", "LL", "reduce", "int32", "max", "8"), (BOTH, "3", "LL", "all_gather", "int8", "sum", "1K"),
        (BOTH, "2", "Simple", "sendrecv", "bfloat16", "sum", "64K"), (ONE, "2", "Simple", "all_reduce", "float", "sum", "256K"))
SECONDS = 100  # for a case of ten
SENT = re.compile(r"NET/clustar: verbs: rxe_[ab] sent \d+ messages / (\d+) bytes, received \d+ / (\d+)")


def run(library, plugin, case):
    """Nothing, or what is wrong with it."""
    devices, ranks, protocol, collective, kind, operator, size = case
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CLUSTAR_TRANSPORT": "verbs", "CLUSTAR_REQUIRE": "verbs", "CLUSTAR_IB_HCA": devices,
                       "CLUSTAR_SOCKET_IFNAME": "va", "NCCL_SOCKET_IFNAME": "va", "NCCL_NET": "clustar",
                       "NCCL_NET_PLUGIN": "clustar", "NCCL_PROTO": protocol, "NCCL_ALGO": "Ring", "NCCL_CUMEM_ENABLE": "0",
                       "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/%p", "LD_LIBRARY_PATH": f"{library.parent}:{plugin}"}
        command = [library.parent / "nccl-host-perf", "-g", ranks, "-C", collective, "-d", kind, "-o", operator, "-b", size,
                   "-e", size, "-n", "1", "-T", str(SECONDS)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, errors="replace")
        logs = [log.read_text(errors="replace") for log in pathlib.Path(folder).iterdir()]
    told = "\n".join(log[-2000:] for log in logs) + done.stdout + done.stderr[-1000:]
    if done.returncode or "# checked: 0 wrong" not in done.stdout:
        return f"ended with {done.returncode}\n{told}"
    if sum("Using network clustar" in log for log in logs) != int(ranks):
        return f"not every rank used clustar\n{told}"
    # NCCL wants the two fused, and has no place for a fused device that is none of PCI's.
    refused = sum("rxe_a has no PCI path" in log for log in logs)
    if refused != (int(ranks) if devices == BOTH else 0):
        return f"{refused} ranks refused to fuse {devices}\n{told}"
    sent, received = (sum(int(found[way]) for log in logs for found in SENT.findall(log)) for way in (0, 1))
    return "" if sent == received > 0 else f"{sent} bytes went over verbs, and {received} came\n{told}"


def inside(arguments):
    wrong = 0
    for case in CASES + (MORE if arguments.all else ()):
        problem = run(pathlib.Path(arguments.inside), arguments.plugin, case)
        wrong += bool(problem)
        print(f"{'FAILED' if problem else 'ok    '} {' '.join(case)}{': ' + problem if problem else ''}", flush=True)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--inside", metavar="LIBRARY", help="NCCL's; as the virtual machine calls it")
    arguments = parser.parse_args()
    if arguments.inside:
        return inside(arguments)
    built = subprocess.run([ROOT / "scripts/nccl-host"], capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr.strip())
        return built.returncode
    command = [ROOT / "scripts/softroce-vm", "--mem", "3072", "--timeout", "280", "--", sys.executable, "-B", __file__,
               "--plugin", str(pathlib.Path(arguments.plugin).resolve()), "--inside", built.stdout.strip()]
    return subprocess.run(command + (["--all"] if arguments.all else []), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
