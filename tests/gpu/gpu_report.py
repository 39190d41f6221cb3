"""Reads what the ranks of a GPU check left behind, judges it, and writes results.json and results.md."""

import collections
import csv
import json
import os
import re

import gpu_collnet
import gpu_gdr
import gpu_kernels
import gpu_trainer
import gpu_loss
import gpu_speed
import gpu_torch
import gpu_trace

EVIDENCE = re.compile(r"NCCL version|NET/Plugin|Loaded net plugin|Using network|via NET/|PROFILER/Plugin|TUNER/Plugin|Duplicate GPU|WARN|log shim|"
                      r"\bCLUSTAR\b|time is up|nccl-check:")
EVIDENCE_LINES = 18
SKIP = 77
SEND_ROWS = 200


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def read_json(path):
    try:
        return json.loads(read_text(path))
    except ValueError:
        return None


def read_log(text):
    """What NCCL's own log says about the network it took."""
    def first(pattern):
        match = re.search(pattern, text)
        return match[1] if match else ""

    lines = [line.strip() for line in text.splitlines() if EVIDENCE.search(line)]
    # Many lines say the same for other channels: one of each kind tells as much.
    unique = list(collections.OrderedDict((re.sub(r"\d+", "#", line), line) for line in reversed(lines)).values())[::-1]
    return {"nccl_version": first(r"NCCL version ([\w.+]+)"),
            "networks": sorted(set(re.findall(r"Using network (\S+)", text))),
            "plugin_api": first(r"Loaded net plugin \S+ \((v\d+)\)"),
            # NCCL 2.27 writes "loaded NAME", "Using tuner plugin NAME"; later ones "Loaded NAME (v5)", "Using NAME (v5)".
            "profiler": first(r"PROFILER/Plugin: [Ll]oaded (\S+(?: \(v\d+\))?)"),
            "tuner": first(r"TUNER/Plugin: Using (?:tuner plugin )?(\S+(?: \(v\d+\))?)"),
            # Of one direction at least; "GDRDMA(PCI)" on systems with C2C.
            "gpu_memory": "GDRDMA" in text,
            "collnet": gpu_collnet.read(text),
            "channels": sorted(set(re.findall(r"via (NET/[^/\s]+)", text))),
            "evidence": unique[:EVIDENCE_LINES]}


def read_shim(path):
    """Counts of the transfers that the logging shim wrote; None when there is no file."""
    if not os.path.exists(path):
        return None
    sends, sent_bytes, failures, done = collections.Counter(), 0, 0, 0
    requests = 0
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if None in row.values() or not (row["result"] or "").lstrip("-").isdigit():
                continue  # a last line that was cut when the process ended
            failures += row["result"] != "0"
            if row["call"] in ("isend", "irecv", "iflush") and row["request"] != "(nil)":
                requests += 1
            elif row["call"] == "test":
                done += 1
            if row["call"] == "isend" and row["result"] == "0":
                sends[(row["op"], row["algo"], row["proto"], row["tag"], int(row["bytes"]))] += 1
                sent_bytes += int(row["bytes"])
    rows = [{"op": op, "algo": algo, "proto": proto, "tag": tag, "bytes": size, "count": count}
            for (op, algo, proto, tag, size), count in sends.most_common(SEND_ROWS)]
    return {"sends": sum(sends.values()), "sent_bytes": sent_bytes, "requests": requests, "completed": done,
            "failed_calls": failures, "by_size": rows, "distinct": len(sends)}


def ring_bytes(results):
    """Payload that one rank of a ring would send for these collectives, the checked run and the timed ones."""
    factor = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
    return sum(result["bytes"] * factor[result["collective"]] * (result["ranks"] - 1) // result["ranks"] *
               (result["iterations"] + 1) for result in results)


def read_case(out, spec, earlier=()):
    """`earlier`: the cases run before, of which PyTorch's over Socket is a reference."""
    name, ranks = spec.name, spec.ranks
    reports = [read_json(os.path.join(out, f"{name}.rank{rank}.json")) for rank in range(ranks)]
    logs = [read_log(read_text(os.path.join(out, f"{name}.rank{rank}.log"))) for rank in range(ranks)]
    case = {"networks": sorted(set().union(*(log["networks"] for log in logs))),
            "ranks_with_network": sum(bool(log["networks"]) for log in logs),
            "channels": sorted(set().union(*(log["channels"] for log in logs))),
            "nccl_version": logs[0]["nccl_version"], "plugin_api": logs[0]["plugin_api"],
            "profilers": [log["profiler"] for log in logs], "tuners": [log["tuner"] for log in logs],
            "evidence": logs[0]["evidence"], "ranks_reported": sum(report is not None for report in reports)}
    case["gdr"] = spec.gdr
    if spec.collnet:
        case["collnet"] = [log["collnet"] for log in logs]
    case["ranks_with_gpu_memory"] = sum(log["gpu_memory"] for log in logs)
    merged = []
    if all(reports):
        for rows in zip(*(report["results"] for report in reports)):
            row = {"communicator": "world", "ranks": ranks, **rows[0]}
            row["correct"] = all(other["correct"] for other in rows)
            row["time_us"] = max(other["time_us"] for other in rows)
            for key in ("algbw_gbytes_per_s", "busbw_gbytes_per_s"):
                row[key] = min(other[key] for other in rows)
            row["first_wrong"] = "; ".join(f"rank {rank}: {other['first_wrong']}" for rank, other in enumerate(rows)
                                           if other.get("first_wrong"))
            merged.append(row)
    case["collectives"] = merged
    traces = [os.path.join(out, f"{name}.rank{rank}.csv") for rank in range(ranks)]
    if spec.logged:
        case["shim"] = [read_shim(path) for path in traces]
        case["ring_formula_bytes"] = ring_bytes(merged)
    if spec.trace:
        api = case["plugin_api"]
        case["trace_deviation"], case["identity"] = gpu_trace.judge(
            spec.trace, [gpu_trace.rows_of(path) for path in traces], ranks, merged, api != "" and int(api[1:]) >= 11)
    if spec.loss is not None:
        # Below net API v11 NCCL gives no second opinion on a message, so that none may lose (docs/loss.md).
        tolerance = spec.loss if case["plugin_api"] == "" or int(case["plugin_api"][1:]) >= 11 else 0
        case["loss_deviation"], case["loss"] = gpu_loss.judge(reports, tolerance)
    if spec.torch:
        case["torch_deviation"], case["torch"] = gpu_torch.judge(reports, spec.torch == "exact",
                                                                 gpu_torch.reference_of(earlier))
    return case


def judge_plugins(case, spec):
    """Why the profiler, the tuner or the trace is not as it must be; empty if all is well."""
    for kind in ("profilers", "tuners") if spec.profiled else ():
        for rank, name in enumerate(case[kind]):
            if "clustar" not in name.lower():
                return f"rank {rank}: NCCL's log names {name or 'no plugin'} among its {kind}, not ours"
    if spec.trace and case["trace_deviation"]:
        return case["trace_deviation"]
    if spec.collnet and (why := gpu_collnet.judge(case["collnet"], spec.collnet)):
        return why
    if spec.loss is not None and case["loss_deviation"]:
        return case["loss_deviation"]
    if spec.torch and case["torch_deviation"]:
        return case["torch_deviation"]
    return ""


def judge(case, spec, network):
    """('passed' | 'failed', why)"""
    statuses = case["statuses"]
    if spec.must_fail:
        if any(status == 0 for status in statuses) or case["ranks_reported"]:
            return "failed", f"NCCL went on without the plugin, over {', '.join(case['networks']) or 'an unnamed network'}"
        if all(status is None for status in statuses):
            return "failed", "NCCL neither failed nor finished within the limit"
        return "passed", "NCCL refused to start without the plugin"
    wrong = [row for row in case["collectives"] if not row["correct"]]
    if wrong:
        return "failed", f"{len(wrong)} of {len(case['collectives'])} results are wrong; the first: " \
                         f"{wrong[0]['collective']} {wrong[0]['type']} of {wrong[0]['bytes']} B: {wrong[0]['first_wrong']}"
    if spec.torch and all(status == SKIP for status in statuses):
        return "skipped", "no PyTorch with a GPU here"
    # The rank that failed first, before the one that only waited for it.
    for rank, status in enumerate(statuses):
        if status not in (0, None):
            said = case["collnet"][rank]["why_not"] if spec.collnet else ""
            return "failed", f"rank {rank} ended with status {status}{': ' if said else ''}{said}; see its log in details.tar.gz"
    for rank, status in enumerate(statuses):
        if status is None:
            return "failed", f"rank {rank} did not end within the limit and was stopped; see its log in details.tar.gz"
    if not case["collectives"] and not spec.torch:
        return "failed", "a rank wrote no results"
    if [name.lower() for name in case["networks"]] != [network.lower()] or case["ranks_with_network"] != len(statuses):
        return "failed", f"NCCL's log names network {case['networks'] or 'none'}, wanted {network} on every rank"
    if spec.gdr and case["ranks_with_gpu_memory"] != len(statuses):
        return "failed", f"NCCL handed over GPU memory (GDRDMA in its log) on {case['ranks_with_gpu_memory']} of " \
                         f"{len(statuses)} ranks: nothing was staged there"
    if spec.logged:
        for rank, shim in enumerate(case["shim"]):
            if not shim or not shim["sends"]:
                return "failed", f"rank {rank}: the logging shim saw no isend"
            if shim["failed_calls"]:
                return "failed", f"rank {rank}: {shim['failed_calls']} calls of the plugin failed"
    if why := judge_plugins(case, spec):
        return "failed", why
    if spec.loss is not None:
        return "passed", f"{gpu_loss.text(case['loss'])}; over {case['networks'][0]}"
    if spec.torch:
        return "passed", f"{gpu_torch.text(case['torch'], spec.torch == 'exact')}; over {case['networks'][0]}"
    text = f"{len(case['collectives'])} results bit-identical over {case['networks'][0]}"
    if spec.trace:
        text += f", {case['identity']['identified']} of {case['identity']['sends']} sends identified"
    if spec.collnet:
        text += f", {case['collnet'][0]['all_reduces'].get(gpu_collnet.CHAIN, 0)} all-reduces of each rank by CollNet"
    return "passed", text


def size_text(size):
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def identity_lines(cases):
    lines = []
    for case in cases:
        identity = case.get("identity")
        if not identity:
            continue
        lines += ["", f"## Whose the sends were: {case['name']}", "",
                  f"- {identity['identified']} of {identity['sends']} sends identified, of {identity['communicators']} "
                  f"communicators, up to {identity['most_loops']} loops",
                  f"- profiler {case['profilers'][0] or 'none'}, tuner {case['tuners'][0] or 'none'}",
                  f"- deviation: {case['trace_deviation'] or 'none'}"]
        lines += [f"- {identity['replays']}"] if "replays" in identity else []
        lines += [f"- numbers of {key}: {value}" for key, value in identity["numbers"].items()]
        lines += [f"- {kind['count']} sends of {kind['func']}, {kind['algo']}, {kind['proto']}"
                  for kind in identity["kinds"]]
    return lines


def markdown(document):
    results, machine = document["results"], document["machine"]
    cases = results["cases"]
    version = next((case["nccl_version"] for case in cases if case.get("nccl_version")), "unknown")
    title = "# GPU check, against the emulated device: no GPU was there" if document.get("emulated") else "# GPU check"
    lines = [title, "",
             f"{machine.get('gpu') or 'unknown GPU'}, driver {machine.get('driver') or 'unknown'}, NCCL {version}; "
             f"{machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}; clustar {document['version']}.", "",
             "The steps are those of a GPU; nothing here says anything about one, and no time is a GPU's." if document.get("emulated")
             else "The ranks share one GPU, which serves them in turns: this shows that NCCL over the plugin is correct; its "
                  "times say nothing about a network.", "",
             f"**{results['passed']} passed, {results['failed']} failed, {results['skipped']} skipped**", "",
             "| case | outcome | ranks | network | plugin API | results checked | time | what |",
             "|---|---|---|---|---|---|---|---|"]
    for case in cases:
        lines.append(f"| {case['name']} | {case['outcome']} | {case.get('ranks', '-')} | {', '.join(case.get('networks', [])) or '-'} | "
                     f"{case.get('plugin_api') or '-'} | {len(case.get('collectives', []))} | {case.get('seconds', 0):.0f} s | "
                     f"{case['description']}: {case['reason']} |")

    # Other ranks, sizes and communicators are no comparison.
    timed = [case for case in cases if case.get("collectives") and case["ranks"] == 2 and not case.get("collnet") and
             case.get("identity") is None and case.get("loss") is None]
    if timed:
        lines += ["", "## Time and bus bandwidth, float32", "",
                  "| collective | bytes | correct | " + " | ".join(f"{case['name']}, us (GB/s)" for case in timed) + " |",
                  "|---|---|---|" + "---|" * len(timed)]
        tables = [{(row["collective"], row["bytes"]): row for row in case["collectives"] if row["type"] == "float32"}
                  for case in timed]
        for key in tables[0]:
            rows = [table.get(key) for table in tables]
            cells = [f"{row['time_us']:.0f} ({row['busbw_gbytes_per_s']:.3f})" if row else "-" for row in rows]
            correct = "yes" if all(row is None or row["correct"] for row in rows) else "**no**"
            lines.append(f"| {key[0]} | {size_text(key[1])} | {correct} | " + " | ".join(cells) + " |")

    lines += gpu_gdr.comparison_lines(cases) + gpu_gdr.lines(document.get("gdr"))
    lines += gpu_kernels.lines(document.get("kernels")) + gpu_trainer.lines(document.get("trainer"))
    for case in cases:
        if not case.get("shim"):
            continue
        lines += ["", f"## What NCCL sent: {case['name']}", ""]
        for rank, shim in enumerate(case["shim"]):
            if shim:
                lines.append(f"- rank {rank}: {shim['sends']} isends, {shim['sent_bytes']} B (a ring needs "
                             f"{case['ring_formula_bytes']} B), {shim['completed']} of {shim['requests']} requests done, "
                             f"{shim['failed_calls']} failed calls, {shim['distinct']} kinds of isend")
        if case["shim"][0]:
            lines += ["", "Rank 0's most frequent:", "", "| op | algorithm | protocol | tag | bytes | count |", "|---|---|---|---|---|---|"]
            lines += [f"| {row['op']} | {row['algo']} | {row['proto']} | {row['tag']} | {row['bytes']} | {row['count']} |"
                      for row in case["shim"][0]["by_size"][:15]]

    lines += identity_lines(cases) + gpu_loss.lines(cases) + gpu_torch.lines(cases) + gpu_speed.lines(document.get("speed"))
    lines += ["", "## Evidence: lines of rank 0's log", ""]
    for case in cases:
        lines += [f"{case['name']}:", "```", *(case.get("evidence") or ["(none)"]), "```"]
    return "\n".join(lines) + "\n"


def write(document, out):
    with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)
        stream.write("\n")
    with open(os.path.join(out, "results.md"), "w", encoding="utf-8") as stream:
        stream.write(markdown(document))
