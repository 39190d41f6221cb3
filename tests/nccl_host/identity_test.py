"""What the plugin says of every send of a collective, against what the kernels did, under NCCL's host code.

usage: identity_test.py --plugin DIR [--sends N] [--first RUN]
DIR: where the plugin and its log shim are; N: go on until so many sends were compared (2000); RUN: number of the first
run (0), from which collective, ranks, transport and loss follow
"""

import argparse
import collections
import csv
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gpu"))
import gpu_trace
import nccl_host

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
PROTOCOLS = ("LL", "LL128", "Simple")
# Transport and what is injected; TCP loses nothing.
WAYS = (("mlt", ""), ("mlt", "loss=0.01"), ("mlt", "loss=0.02"), ("mlt", "loss=0.05"), ("tcp", ""))
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")


class Deviation(gpu_trace.Deviation):
    """What the plugin said, and what the kernel did."""


def told(path):
    """{channel: [(function, protocol, [bytes of each send])]} as the plugin has it, by its numbers, in order."""
    operations = collections.OrderedDict()
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["call"] != "isend" or row["result"] != "0":
                continue
            if row["func"] == "-":
                raise Deviation(f"not identified: {row}")
            key = (row["channel"], row["comm"], row["func"], row["number"])
            protocol, sends = operations.setdefault(key, (row["coll_proto"], []))
            if row["coll_proto"] != protocol:
                raise Deviation(f"protocol was {protocol} before: {row}")
            if int(row["transfer"]) != len(sends):
                raise Deviation(f"transfer is not {len(sends)}: {row}")
            sends.append(int(row["bytes"]))
    channels = collections.defaultdict(list)
    for (channel, _, function, _), (protocol, sends) in operations.items():
        channels[int(channel)].append((function, protocol, sends))
    return channels


def done(path):
    """The same as the kernels did it; what sent nothing is no operation of the network's."""
    channels = collections.defaultdict(list)
    for line in path.read_text().splitlines():
        function, protocol, channel, *sends = map(int, line.split())
        if sends:
            channels[channel].append((FUNCTIONS[function], PROTOCOLS[protocol], sends))
    return channels


def check_fields(folder):
    """The fields that a kernel knows nothing of, by the judge of scripts/gpu-check: numbers, phases, total bytes."""
    traces = [gpu_trace.rows_of(path) for path in sorted(folder.glob("sends.*"))]
    rings = [[row for row in rows if gpu_trace.is_simple_ring(row)] for rows in traces]
    for rank, rows in enumerate(traces):
        for row in rows:
            gpu_trace.check_attributes(rank, row, True)
        for row in rings[rank]:
            gpu_trace.check_phase(rank, row)
        gpu_trace.check_order(rank, rings[rank], False)
    gpu_trace.check_numbers(traces, False)
    for by_rank in gpu_trace.collectives_of(rings).values():
        gpu_trace.check_bytes(by_rank)


def compare(folder, ranks):
    """The number of sends of all ranks that were compared."""
    traces, logs = sorted(folder.glob("kernel.*")), list(folder.glob("sends.*"))
    if (len(traces), len(logs)) != (ranks, ranks):
        raise Deviation(f"{len(traces)} traces of kernels and {len(logs)} of the plugin, of {ranks} ranks")
    compared = 0
    for trace in traces:
        log = folder / trace.name.replace("kernel", "sends")
        said, did = told(log), done(trace)
        if said != did:
            channel = next(c for c in sorted(set(said) | set(did)) if said.get(c) != did.get(c))
            raise Deviation(f"{trace.name}, channel {channel}: the plugin says {str(said.get(channel))[:300]}, "
                            f"the kernel did {str(did.get(channel))[:300]}")
        compared += sum(len(sends) for operations in did.values() for _, _, sends in operations)
    check_fields(folder)
    return compared


def other(values):
    """A change of one field to the next of `values`."""
    return lambda field: values[(values.index(field) + 1) % len(values)]


# What one wrong field is: (files, separator, what lines to look for, which field, its change).
PLANTED = {
    "bytes that a kernel sent": ("kernel.*", " ", "", -1, lambda field: str(int(field) + 1)),
    "the kernel's function": ("kernel.*", " ", "", 0, other([str(i) for i in range(len(FUNCTIONS))])),
    "the kernel's protocol": ("kernel.*", " ", "", 1, other([str(i) for i in range(len(PROTOCOLS))])),
    "the kernel's channel": ("kernel.*", " ", "", 2, lambda field: str(int(field) + 1)),
    "the plugin's function": ("sends.*", ",", ",isend,", 11, other(FUNCTIONS)),
    "the plugin's channel": ("sends.*", ",", ",isend,", 14, lambda field: str(int(field) + 1)),
    "the plugin's transfer": ("sends.*", ",", ",isend,", 15, lambda field: str(int(field) + 1)),
    "the plugin's number": ("sends.*", ",", ",isend,", 12, lambda field: str(int(field) + 1)),
    "the plugin's protocol": ("sends.*", ",", ",isend,", -1, other(PROTOCOLS)),
    "the plugin's stage": ("sends.*", ",", ",isend,", 18, lambda field: str(int(field) + 1)),
    "the plugin's total bytes": ("sends.*", ",", ",isend,", 21, lambda field: str(int(field) + 1)),
    "a send without identity": ("sends.*", ",", ",isend,", 11, lambda field: "-"),
}


def check_the_check(folder, ranks):
    """A single wrong field of what was right must be seen, whichever it is."""
    for name, (files, separator, wanted, field, change) in PLANTED.items():
        path = sorted(folder.glob(files))[0]
        right = path.read_text()
        lines = right.splitlines()
        # The last that sent something: nothing comes later that would shift.
        at = max(i for i, line in enumerate(lines) if wanted in line and len(line.split(separator)) > 3)
        fields = lines[at].split(separator)
        fields[field] = change(fields[field])
        path.write_text("\n".join([*lines[:at], separator.join(fields), *lines[at + 1:]]) + "\n")
        try:
            compare(folder, ranks)
        except gpu_trace.Deviation:
            path.write_text(right)
            continue
        raise Deviation(f"planted, and not seen: {name}")


def ranks_of(number):
    return 2 + number % 3


def run(folder, args, number):
    plugin = f"{args.plugin}/libnccl-net-clustar.so"
    # Each collective goes each way in time.
    transport, loss = WAYS[(number + number // len(COLLECTIVES)) % len(WAYS)]
    environment = {**os.environ, "NCCL_NET_PLUGIN": f"{args.plugin}/libnccl-net-clustar-log.so",
                   "NETLOG_PLUGIN": plugin, "NCCL_PROFILER_PLUGIN": plugin, "NCCL_TUNER_PLUGIN": plugin,
                   "NETLOG_FILE": f"{folder}/sends.%p", "NCCL_NET": "clustar",
                   "NCCL_HOST_TRACE": f"{folder}/kernel.%p", "CLUSTAR_TRANSPORT": transport, "NCCL_DEBUG": "WARN",
                   # NCCL 2.29 and later queue broadcasts for it, of which they tell the profiler nothing.
                   "NCCL_ALLGATHERV_ENABLE": "0"}
    if loss:
        environment["CLUSTAR_INJECT_FAULTS"] = loss
    calls = max(12, min(args.sends // 400, 2000))
    command = ["nccl-host-perf", "-g", ranks_of(number), "-C", COLLECTIVES[number % len(COLLECTIVES)], "-b", "8", "-e", "2M",
               "-f", "512", "-n", calls, "-T", "600"]
    return nccl_host.run(command, environment)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--sends", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    status = nccl_host.made_ready(args.plugin)
    if status:
        return status
    if nccl_host.Ready.version < (2, 28):
        print("SKIP: NCCL before 2.28 has no setNetAttr to compare with what the profiler says")
        return nccl_host.SKIP
    compared, number, begin = 0, args.first, time.monotonic()
    # Every collective once, whatever N is.
    while compared < args.sends or number < args.first + len(COLLECTIVES):
        with tempfile.TemporaryDirectory() as name:
            ran = run(pathlib.Path(name), args, number)
            try:
                fresh = compare(pathlib.Path(name), ranks_of(number))
                if ran.returncode or "# checked: 0 wrong" not in ran.stdout or fresh == 0:
                    raise Deviation(f"ended with {ran.returncode} after {fresh} sends\n"
                                    f"{(ran.stdout + ran.stderr)[-1500:]}")
                if number == args.first:
                    check_the_check(pathlib.Path(name), ranks_of(number))
            except (gpu_trace.Deviation, OSError) as deviation:
                print(f"FAILED run {number}: {deviation}")
                return 1
        compared += fresh
        number += 1
    print(f"{compared} sends in {number - args.first} runs: function, protocol, channel, transfer and bytes as "
          f"the kernels had them, the rest by gpu-check's judge, in {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
