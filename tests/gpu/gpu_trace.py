"""Judges which collective each send was, as the logging shim wrote it, against what NCCL's ring must do.

The phase formula is worked out here again, from NCCL v2.28.9 (src/enqueue.cc calcCollChunking, src/device/all_reduce.h,
reduce_scatter.h, all_gather.h), so that the plugin's own is checked by another one.
"""

import collections
import csv
import os

POINT_TO_POINT = {"SendRecv", "Send", "Recv", "AlltoAll", "Scatter", "Gather"}
RING_FUNCTIONS = {"AllReduce", "ReduceScatter", "AllGather"}
FUNCTION_OF = {"all_reduce": "AllReduce", "reduce_scatter": "ReduceScatter", "all_gather": "AllGather"}
SLICES = 2  # network transfers of a chunk: chunkSteps 4 over sliceSteps 2
# A chunk is rounded up to 16 B and a whole element, so the last one of a loop is that much shorter per rank.
ROUNDING = 32

Phase = collections.namedtuple("Phase", "loop stage slice reducing")


class Deviation(Exception):
    """What is not as it must be, with the first row that shows it."""


def rows_of(path):
    """The sends that NCCL's network took, in their order; `line` is the row's in the file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as stream:
        rows = [{**row, "line": line} for line, row in enumerate(csv.DictReader(stream), 2) if row["call"] == "isend"]
    # The last line is cut when a process is killed.
    return [row for row in rows if None not in row.values() and row["result"] == "0"]


def shown(rank, row):
    names = ("bytes", "op", "algo", "proto", "func", "number", "local_number", "channel", "transfer", "transfers",
             "loop", "stage", "slice", "reducing", "total_bytes", "comm", "ranks", "coll_algo", "coll_proto")
    return f"rank {rank}, line {row['line']}: " + " ".join(f"{name}={row[name]}" for name in names)


def steps_per_loop(function, ranks):
    return (2 * (ranks - 1) if function == "AllReduce" else ranks - 1) * SLICES


def phase(function, ranks, transfer):
    """Loop, stage, slice and whether it is a reduce-scatter step, of network transfer `transfer` (from 0)."""
    loop, within = divmod(transfer, steps_per_loop(function, ranks))
    step, part = divmod(within, SLICES)
    reducing = function == "ReduceScatter" or (function == "AllReduce" and step < ranks - 1)
    stage = step if reducing or function == "AllGather" else step - (ranks - 1)
    return Phase(loop, stage, part, int(reducing))


def is_simple_ring(row):
    return row["func"] in RING_FUNCTIONS and (row["coll_algo"], row["coll_proto"]) == ("Ring", "Simple")


def check_identified(traces):
    for rank, rows in enumerate(traces):
        missing = [row for row in rows if row["func"] == "-" and row["op"] not in POINT_TO_POINT]
        if missing:
            raise Deviation(f"{len(missing)} of {len(rows)} sends are not identified; the first: "
                            f"{shown(rank, missing[0])}")


def check_attributes(rank, row, has_attributes):
    """setNetAttr and the profiler are told by different parts of NCCL: they must agree."""
    if "LL128" in (row["proto"], row["coll_proto"]):
        raise Deviation(f"LL128, which the tuner must forbid: {shown(rank, row)}")
    said = (row["op"], row["algo"], row["proto"])
    if has_attributes and said != (row["func"], row["coll_algo"], row["coll_proto"]):
        raise Deviation(f"setNetAttr and the profiler differ: {shown(rank, row)}")


def check_phase(rank, row):
    ranks, transfers, transfer = int(row["ranks"]), int(row["transfers"]), int(row["transfer"])
    per_loop = steps_per_loop(row["func"], ranks)
    if transfers == 0 or transfers % per_loop:
        raise Deviation(f"transfers are not a multiple of {per_loop}: {shown(rank, row)}")
    wanted = phase(row["func"], ranks, transfer)
    if tuple(row[name] for name in Phase._fields) != tuple(str(value) for value in wanted):
        raise Deviation(f"phase is not {' '.join(f'{name}={value}' for name, value in wanted._asdict().items())}: "
                        f"{shown(rank, row)}")


def check_order(rank, rows, replayed):
    """Transfers of each channel of each collective: 0, 1, 2, ... `transfers` - 1; again from 0 only in replays."""
    expected, last = {}, {}
    for row in rows:
        key = (row["comm"], row["func"], row["number"], row["channel"])
        wanted, transfers = expected.get(key, (0, row["transfers"]))
        if replayed and wanted == int(transfers):
            wanted, transfers = 0, row["transfers"]
        if (row["transfer"], row["transfers"]) != (str(wanted), transfers) or wanted >= int(transfers):
            raise Deviation(f"transfer is not {wanted} of {transfers}: {shown(rank, row)}")
        expected[key] = (wanted + 1, transfers)
        last[key] = row
    for key, (count, transfers) in expected.items():
        if count != int(transfers):
            raise Deviation(f"the collective ended after {count} of {transfers} transfers: {shown(rank, last[key])}")


def collectives_of(traces):
    """{(comm, func, number): {rank: rows}}"""
    out = collections.defaultdict(lambda: collections.defaultdict(list))
    for rank, rows in enumerate(traces):
        for row in rows:
            out[(row["comm"], row["func"], row["number"])][rank].append(row)
    return out


def check_bytes(by_rank):
    """What each rank sent of one collective over a Simple ring, and all of them together."""
    first_rank, first = next((rank, rows[0]) for rank, rows in by_rank.items())
    ranks, total = int(first["ranks"]), int(first["total_bytes"])
    for rank, rows in by_rank.items():
        odd = next((row for row in rows if any(row[name] != first[name] for name in ("total_bytes", "ranks"))), None)
        if odd:
            raise Deviation(f"not total_bytes={total} ranks={ranks} as rank {first_rank} has: {shown(rank, odd)}")
    if len(by_rank) != ranks:
        raise Deviation(f"{len(by_rank)} of {ranks} ranks sent: {shown(first_rank, first)}")
    # Of one rank's input: an all-gather's is one part, a reduce-scatter's all parts.
    share = {"AllReduce": 2 * (ranks - 1) * total / ranks, "ReduceScatter": (ranks - 1) * total / ranks,
             "AllGather": (ranks - 1) * total}[first["func"]]
    sent = {rank: sum(int(row["bytes"]) for row in rows) for rank, rows in by_rank.items()}
    for rank, rows in by_rank.items():
        channels = len({row["channel"] for row in rows})
        slack = channels * 2 * (ranks - 1) * ROUNDING if first["func"] == "AllReduce" else 0
        if abs(sent[rank] - share) > slack:
            raise Deviation(f"{sent[rank]} B sent, not {share:.0f} (give or take {slack}): {shown(rank, rows[0])}")
    # Rounding moves bytes between ranks, never adds any.
    if sum(sent.values()) != round(share * ranks):
        raise Deviation(f"all ranks sent {sum(sent.values())} B, not {share * ranks:.0f}: {shown(first_rank, first)}")


def check_numbers(traces, local):
    """Eager runs: numbers grow by one per function of a communicator, alike on all ranks."""
    seen = []
    for rank, rows in enumerate(traces):
        numbers, newest = collections.defaultdict(set), {}
        for row in rows:
            if row["local_number"] != str(int(local)):
                raise Deviation(f"local_number is not {int(local)}: {shown(rank, row)}")
            key, number = (row["comm"], row["func"]), int(row["number"])
            numbers[key].add(number)
            channel = (*key, row["object"], row["channel"])
            if number < newest.get(channel, number):
                raise Deviation(f"number after {newest[channel]} on this channel: {shown(rank, row)}")
            newest[channel] = number
        for (comm, function), values in numbers.items():
            gap = next((value for value in range(min(values), max(values)) if value not in values), None)
            if gap is not None and not local:
                raise Deviation(f"rank {rank}: {function} of comm {comm} has no number {gap}, "
                                f"between {min(values)} and {max(values)}")
        seen.append(numbers)
    for rank, numbers in enumerate(seen):
        for (comm, function), values in numbers.items():
            for other, theirs in enumerate(seen):
                mine = theirs.get((comm, function))
                if mine is not None and mine != values and not local:
                    raise Deviation(f"{function} of comm {comm}: rank {rank} has {len(values)} numbers from "
                                    f"{min(values)}, rank {other} {len(mine)} from {min(mine)}")


def check_all_there(rows, results):
    """Rank 0's collectives in the trace are those that its program made."""
    made = collections.Counter()
    for result in results:
        function, ranks = FUNCTION_OF[result["collective"]], result["ranks"]
        if ranks > 1:
            size = result["bytes"] // ranks if function == "AllGather" else result["bytes"]
            made[(ranks, function, size)] += result["iterations"] + 1
    traced = {(row["comm"], row["func"], row["number"]): (int(row["ranks"]), row["func"], int(row["total_bytes"]))
              for row in rows}
    counted = collections.Counter(traced.values())
    for ranks, function, size in sorted(made | counted):
        key = (ranks, function, size)
        if made[key] != counted[key]:
            raise Deviation(f"the trace of rank 0 has {counted[key]} {function} of total_bytes={size} on {ranks} "
                            f"ranks, its program made {made[key]}")


def summary(traces, rings):
    """What results.json and results.md say about the identities."""
    kinds, numbers = collections.Counter(), collections.defaultdict(set)
    for rows in traces:
        for row in rows:
            kinds[(row["func"], row["coll_algo"], row["coll_proto"])] += 1
            if row["func"] != "-":
                numbers[f"{row['func']} on {row['ranks']} ranks, comm {row['comm']}"].add(int(row["number"]))
    return {"sends": sum(len(rows) for rows in traces),
            "identified": sum(row["func"] != "-" for rows in traces for row in rows),
            "communicators": len({row["comm"] for rows in traces for row in rows if row["comm"] != "-"}),
            "kinds": [{"func": func, "algo": algo, "proto": proto, "count": count}
                      for (func, algo, proto), count in sorted(kinds.items())],
            "most_loops": max((int(row["transfers"]) // steps_per_loop(row["func"], int(row["ranks"])) for row in rings),
                              default=0),
            "numbers": {key: f"{len(values)} from {min(values)} to {max(values)}"
                        for key, values in sorted(numbers.items())}}


def describe_replays(result, traces):
    """How numbers behave when a graph is replayed: reported, since NCCL promises nothing."""
    starts = sum(row["transfer"] == "0" and row["channel"] == "0" for row in traces[0])
    numbers = len({(row["comm"], row["func"], row["number"]) for row in traces[0]})
    result["replays"] = f"{starts} collectives replayed on rank 0 have {numbers} numbers, " + \
                        ("each its own" if starts == numbers else "some share one")


def check(kind, traces, ranks, results, has_attributes):
    if not all(traces):
        raise Deviation("a rank has no trace of its sends")
    check_identified(traces)
    known = [[row for row in rows if row["func"] not in POINT_TO_POINT and row["func"] != "-"] for rows in traces]
    for rank, rows in enumerate(known):
        for row in rows:
            check_attributes(rank, row, has_attributes)
            if int(row["ranks"]) != ranks and (kind != "split" or not 2 <= int(row["ranks"]) < ranks):
                raise Deviation(f"ranks is not {ranks}: {shown(rank, row)}")
            if kind != "defaults" and not is_simple_ring(row):
                raise Deviation(f"not a ring with Simple, as NCCL was told: {shown(rank, row)}")
            if is_simple_ring(row):
                check_phase(rank, row)
    for rank, rows in enumerate(known):
        check_order(rank, [row for row in rows if is_simple_ring(row)], kind == "graph")
    check_numbers(known, kind == "graph")
    if kind == "graph":
        return
    for by_rank in collectives_of([[row for row in rows if is_simple_ring(row)] for rows in known]).values():
        check_bytes(by_rank)
    check_all_there(known[0], results)


def judge(kind, traces, ranks, results, has_attributes):
    """(what is wrong, empty if nothing; what was seen). `kind`: ring, defaults, split or graph; `traces`: rows_of each
    rank; `has_attributes`: NCCL's net API has setNetAttr (v11 and later)."""
    wrong = ""
    try:
        check(kind, traces, ranks, results, has_attributes)
    except Deviation as deviation:
        wrong = str(deviation)
    rings = [row for rows in traces for row in rows if is_simple_ring(row)]
    result = summary(traces, rings)
    if kind == "graph" and all(traces):
        describe_replays(result, traces)
    return wrong, result
