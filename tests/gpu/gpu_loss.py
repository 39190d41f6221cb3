"""Judges training steps over a plugin that may lose: replicas after every step, and what is missing from the sums
against what each rank's plugin says that it lost.

The steps' gradients show of each element which ranks' contributions are in it (lossy_replica.h), the ledgers are those
of clustarApi_v1 (nccl_plugin/clustar.h): neither knows of the other. docs/loss.md has the bounds.
"""

ALL_REDUCE = 4  # ncclFuncAllReduce
ELEMENT = 4
# What may be eligible is a reduce-scatter's share, give or take the rounding of chunks on each channel.
ROUNDING = 1024
# By which factor the steps must at least come nearer to the solution: so the sums were used, and were of use.
PROGRESS = 10


class Deviation(Exception):
    """What is not as it must be, with where."""


def check_replicas(trainings):
    counts = [len(training["steps"]) for training in trainings]
    if len(set(counts)) != 1 or not counts[0]:
        raise Deviation(f"the ranks took {counts} steps")
    for step, records in enumerate(zip(*(training["steps"] for training in trainings))):
        for what in ("sums", "parameters"):
            for rank, record in enumerate(records):
                if record[what] != records[0][what]:
                    raise Deviation(f"replicas differ after step {step}: digest of the {what} is {records[0][what]} on "
                                    f"rank 0, {record[what]} on rank {rank}")
        if records[0]["unreadable_elements"]:
            raise Deviation(f"step {step}: {records[0]['unreadable_elements']} elements are no sum of contributions")
        # The rank that completes a chunk adds its own contribution itself: no network can lose that.
        if records[0]["empty_elements"]:
            raise Deviation(f"step {step}: {records[0]['empty_elements']} elements lack every rank's contribution")
    before, after = trainings[0]["distance"]
    if not after < before / PROGRESS:
        raise Deviation(f"the steps did not solve the problem: the distance was {before:g}, is {after:g}")


def check_collective(rank, step, entry, size, ranks, tolerance):
    where = f"rank {rank}, step {step}"
    found = {key: entry[key] for key in ("function", "local_number", "total_bytes", "ranks")}
    wanted = {"function": ALL_REDUCE, "local_number": 0, "total_bytes": size, "ranks": ranks}
    if found != wanted:
        raise Deviation(f"{where}: the plugin took the collective for {found}, not {wanted}")
    # Each rank is a host of its own here, so the ring crosses the network as often as there are ranks.
    if entry["contributions"] > tolerance * size:
        raise Deviation(f"{where}: {entry['contributions']} B of contributions are missing, more than {tolerance} of "
                        f"{size} B")
    if entry["eligible_bytes"] > size * (ranks - 1) / ranks + ROUNDING:
        raise Deviation(f"{where}: {entry['eligible_bytes']} B were eligible, more than the reduce-scatter steps "
                        "bring")
    ranges = entry["ranges"]
    if (ranges["bytes"], ranges["contributions"]) != (entry["missing_bytes"], entry["contributions"]):
        raise Deviation(f"{where}: the missing ranges are {ranges['bytes']} B and {ranges['contributions']} B of "
                        f"contributions, the ledger says {entry['missing_bytes']} and {entry['contributions']}")
    if ranges["count"] and ranges["last_stage"] > ranks - 2:
        raise Deviation(f"{where}: something is missing of stage {ranges['last_stage']}, a reduce-scatter's last is "
                        f"{ranks - 2}")


def check_ledger(rank, training, size, ranks, tolerance):
    totals, entries = training["ledger"]["totals"], training["ledger"]["collectives"]
    steps = len(training["steps"])
    if len(entries) != steps or len({entry["comm"] for entry in entries}) != 1:
        raise Deviation(f"rank {rank}: the plugin knows of {len(entries)} collectives, the program made {steps}")
    numbers = [entry["number"] for entry in entries]
    if numbers != list(range(numbers[0], numbers[0] + steps)):
        raise Deviation(f"rank {rank}: numbers of the collectives are not one after the other: {numbers}")
    for step, entry in enumerate(entries):
        check_collective(rank, step, entry, size, ranks, tolerance)
    if sum(entry["missing_bytes"] for entry in entries) != totals["missing_bytes"]:
        raise Deviation(f"rank {rank}: {totals['missing_bytes']} B are missing, but not of the collectives that it "
                        "lists")
    if totals["missing_bytes"] > tolerance * totals["eligible_bytes"]:
        raise Deviation(f"rank {rank}: {totals['missing_bytes']} B are missing of {totals['eligible_bytes']} B that "
                        f"were eligible, more than {tolerance}")
    if tolerance and not totals["missing_bytes"]:
        raise Deviation(f"rank {rank}: nothing is missing, though the network lost packets and {tolerance} may be; "
                        f"reasons: {training['ledger']['reasons']}")


def check_accounts(trainings, ranks):
    """What the sums of each step lack is what the plugins say: all of it lost in reduce-scatter steps."""
    for step, record in enumerate(trainings[0]["steps"]):
        entries = [training["ledger"]["collectives"][step] for training in trainings]
        missing = sum(entry["missing_bytes"] for entry in entries)
        charged = sum(entry["contributions"] for entry in entries)
        lacking = ELEMENT * sum(record["lacking"])
        elements = ELEMENT * record["lacking_elements"]
        # An element that lost twice on its way was charged twice; with two ranks it has one hop only.
        hops = ranks - 1
        if not lacking <= charged <= hops * lacking or not elements <= missing <= hops * elements:
            raise Deviation(f"step {step}: sums lack {lacking} B of contributions in {elements} B, the plugins charged "
                            f"{charged} B for {missing} B missing")


def check(trainings, size, ranks, tolerance):
    check_replicas(trainings)
    for rank, training in enumerate(trainings):
        check_ledger(rank, training, size, ranks, tolerance)
    check_accounts(trainings, ranks)


def summary(trainings, size):
    ledgers = [training["ledger"] for training in trainings]
    charges = [entry["contributions"] for ledger in ledgers for entry in ledger["collectives"]]
    return {"steps": len(trainings[0]["steps"]), "bytes": size, "distance": trainings[0]["distance"],
            "missing_bytes": [ledger["totals"]["missing_bytes"] for ledger in ledgers],
            "eligible_bytes": [ledger["totals"]["eligible_bytes"] for ledger in ledgers],
            "worst_charge": max(charges, default=0) / size,
            "lacking_elements": sum(record["lacking_elements"] for record in trainings[0]["steps"]),
            "reasons": ledgers[0]["reasons"]}


def judge(reports, tolerance):
    """(what is wrong, empty if nothing; what was seen). `reports`: what each rank wrote, None where it wrote nothing;
    `tolerance`: p, 0 where nothing may be missing."""
    if not all(report and report["results"] and "training" in report["results"][0] for report in reports):
        return "a rank wrote no training steps", None
    rows = [report["results"][0] for report in reports]
    trainings = [row["training"] for row in rows]
    wrong = ""
    try:
        check(trainings, rows[0]["bytes"], len(reports), tolerance)
    except Deviation as deviation:
        wrong = str(deviation)
    return wrong, summary(trainings, rows[0]["bytes"])


def text(seen):
    missing, eligible = sum(seen["missing_bytes"]), sum(seen["eligible_bytes"])
    share = f" ({100 * missing / eligible:.2f} %)" if eligible else ""
    return (f"{seen['steps']} steps, replicas bit-identical after each; {missing} B missing of {eligible} B "
            f"eligible{share}")


def lines(cases):
    out = []
    for case in cases:
        seen = case.get("loss")
        if not seen:
            continue
        out += ["", f"## What was lost: {case['name']}", "",
                f"- {seen['steps']} steps on {seen['bytes']} B; distance to the solution {seen['distance'][0]:g}, then "
                f"{seen['distance'][1]:g}",
                f"- missing by rank: {seen['missing_bytes']} B of {seen['eligible_bytes']} B eligible",
                f"- {seen['lacking_elements']} elements of all sums lack a contribution; the most that one collective "
                f"was charged is {seen['worst_charge']:.6f} of its size",
                f"- why rank 0's other messages were reliable: {seen['reasons']}",
                f"- deviation: {case['loss_deviation'] or 'none'}"]
    return out
