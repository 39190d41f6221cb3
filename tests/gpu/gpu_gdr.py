"""GPU memory in a GPU check: runs gdr-check, judges what it wrote, and compares staged cases with host memory."""

import json
import os
import subprocess

LIMIT_S = 90
SKIP = 77
BASELINE = "ring-simple"


def run(program, out, environment, limit=LIMIT_S):
    """The section `gdr` of results.json: outcome, reason, and what gdr-check found."""
    path = os.path.join(out, "gdr.json")
    try:
        done = subprocess.run([*program, "--json", path], capture_output=True, text=True, timeout=limit,
                              env={**environment}, stdin=subprocess.DEVNULL, errors="replace")
    except OSError as error:
        return {"outcome": "skipped", "reason": f"gdr-check is not built, or does not start: {error.strerror}"}
    except subprocess.TimeoutExpired:
        return {"outcome": "failed", "reason": f"gdr-check did not end within {limit} s and was stopped"}
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    last = said[-1] if said else "it said nothing"
    if done.returncode == SKIP:
        return {"outcome": "skipped", "reason": last}
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        found = None
    section = {"found": found} if found else {}
    if found:
        found["behind_a_kernel_with_one_connection"] = with_one_connection(program, out, environment)
    outcome, reason = judge(found)
    if outcome == "passed" and done.returncode != 0:
        outcome, reason = "failed", f"gdr-check ended with status {done.returncode}: {last}"
    elif not found:
        reason = f"gdr-check ended with status {done.returncode} and wrote no results: {last}"
    return {"outcome": outcome, "reason": reason, **section}


def with_one_connection(program, out, environment):
    """Rows as of `behind_a_kernel`, with CUDA_DEVICE_MAX_CONNECTIONS=1; empty: it did not end, or failed."""
    path = os.path.join(out, "gdr-one-connection.json")
    try:
        subprocess.run([*program, "--behind-only", "1", "--json", path], capture_output=True, timeout=LIMIT_S,
                       env={**environment, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}, stdin=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)["behind_a_kernel"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return []


def exports_of(row):
    return [export for export in row.get("exports", []) if export["exported"]]


def judge(found):
    """('passed' | 'failed', why). What a driver refuses is an answer; wrong bytes, sizes and copies that wait are failures."""
    if not found:
        return "failed", "no results"
    for row in found["memory"]:
        for export in exports_of(row):
            if export["end_of_fd"] != export["size"] or export["offset"] != 5000 % 4096:
                return "failed", f"{row['kind']}: a dma-buf of {export['end_of_fd']} B with the address at " \
                                 f"{export['offset']}, said to have {export['size']} B"
    for row in found["behind_a_kernel"]:
        if not row["ended_while_the_kernel_waited"]:
            return "failed", f"{row['copy']} did not end while a kernel waited: behind NCCL's it would wait for ever"
    for row in found["staging"]:
        if row["wrong_rounds"]:
            return "failed", f"{row['way']}, {row['direction']}, {row['bytes']} B: wrong bytes in {row['wrong_rounds']} of " \
                             f"{row['rounds']} rounds"
    if not found["staging"]:
        return "failed", "nothing was staged"
    exported = [row["kind"] for row in found["memory"] if exports_of(row)]
    return "passed", f"dma-bufs of {', '.join(exported) or 'no kind of memory'}; " \
                     f"flush {'by the host' if found['flush']['flushes'] else 'not offered to the host'}; " \
                     f"{len(found['staging'])} rows of staging, all bytes right"


def compare(cases):
    """Rows of each staged case against ring-simple: of the same collective, type and size, both right."""
    tables = {case["name"]: {(row["collective"], row["type"], row["bytes"]): row["time_us"]
                             for row in case.get("collectives", []) if row["correct"]} for case in cases}
    baseline = tables.get(BASELINE, {})
    compared = {}
    for case in cases:
        if case.get("gdr") and case["outcome"] == "passed":
            rows = [{"collective": key[0], "type": key[1], "bytes": key[2], "ratio": baseline[key] / time}
                    for key, time in tables[case["name"]].items() if key in baseline and time > 0]
            if rows:
                compared[case["name"]] = rows
    return compared


def comparison_lines(cases):
    lines = []
    for name, rows in compare(cases).items():
        wins = sum(row["ratio"] > 1 for row in rows)
        lines += ["", f"## Staged against host memory: {name}", "",
                  f"Faster than {BASELINE} in {wins} of {len(rows)} rows. Kept as a choice only if it wins: "
                  f"{'it does in most' if 2 * wins > len(rows) else 'it does not'}. One run, not repeated.", "",
                  f"| collective | type | bytes | {BASELINE}'s time over its |", "|---|---|---|---|"]
        lines += [f"| {row['collective']} | {row['type']} | {row['bytes']} | {row['ratio']:.2f} |" for row in rows]
    return lines


def export_text(export):
    if not export["exported"]:
        return export["why"]
    through = "through PCIe" if export["pcie"] else "as the driver likes"
    refused = f" ({export['why_not_pcie']})" if export["why_not_pcie"] else ""
    return f"{export['size']} B, address at {export['offset']}, {through}{refused}"


def lines(section):
    """Markdown; empty without a section."""
    if not section:
        return []
    text = ["", "## GPU memory: gdr-check", "", f"**{section['outcome']}**: {section['reason']}"]
    found = section.get("found")
    if not found:
        return text
    attributes = ", ".join(f"{key} {value}" for key, value in found["attributes"].items())
    text += ["", f"{found['gpu']}, CUDA driver {found['cuda_version']}; attributes: {attributes}", "",
             "| memory | place | GPUDirect | legacy | dma-buf, PCIe wanted | dma-buf | SYNC_MEMOPS |",
             "|---|---|---|---|---|---|---|"]
    for row in found["memory"]:
        if not row["allocated"]:
            text.append(f"| {row['kind']} | not to be had: {row['why']} | - | - | - | - | - |")
            continue
        exports = " | ".join(export_text(export) for export in row["exports"])
        text.append(f"| {row['kind']} | {row.get('place', row.get('why'))} | {row.get('gpu_direct', '-')} | "
                    f"{row.get('legacy', '-')} | {exports} | {row['sync_memops']} |")
    flush = found["flush"]
    text += ["", f"Flush to the owner: {flush['median_us']:.2f} us ({flush['q1_us']:.2f} to {flush['q3_us']:.2f}), nothing "
                 f"on its way" if flush["flushes"] else f"Flush: {flush['why']}", ""]
    for key, setting in (("behind_a_kernel", ""),
                         ("behind_a_kernel_with_one_connection", ", CUDA_DEVICE_MAX_CONNECTIONS=1")):
        for row in found[key]:
            ended = "ended" if row["ended_while_the_kernel_waited"] else "**did not end**"
            text.append(f"- {row['copy']} {ended} while a kernel waited for the host{setting} ({row['us']:.0f} us)")
        if not found[key]:
            text.append(f"- no answer on copies while a kernel waits{setting}")
    text += ["", "| direction | bytes | way | median, us | quartiles | GB/s | wrong rounds |", "|---|---|---|---|---|---|---|"]
    for row in found["staging"]:
        text.append(f"| {row['direction']} | {row['bytes']} | {row['way']} | {row['median_us']:.1f} | {row['q1_us']:.1f} to "
                    f"{row['q3_us']:.1f} | {row['gbytes_per_s']:.2f} | {row['wrong_rounds']} of {row['rounds']} |")
    return text
