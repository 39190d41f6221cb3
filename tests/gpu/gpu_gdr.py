"""GPU memory in a GPU check: runs gdr-check, judges what it wrote, and compares staged cases with host memory."""

import json
import os
import subprocess
import time

LIMIT_S = 90
SKIP = 77
BASELINE = "ring-simple"
PLAIN = "cuMemAlloc (cudaMalloc)"   # what every GPU has, so what must be right
PCI_DEVICES = "/sys/bus/pci/devices"
MESSAGES = (64 << 10, 1 << 30)     # what gdr-check takes as --max


def run(program, out, environment, limit=LIMIT_S, most=64 << 20):
    """The section `gdr` of results.json: outcome, reason, and what gdr-check found. Called where there is a GPU.

    limit: seconds for all; most: bytes of the largest message, as gdr-check allows.
    """
    path = os.path.join(out, "gdr.json")
    end = time.monotonic() + limit
    largest = min(max(most, MESSAGES[0]), MESSAGES[1])
    try:
        done = subprocess.run([*program, "--max", str(largest), "--json", path], capture_output=True, text=True,
                              timeout=limit, env={**environment}, stdin=subprocess.DEVNULL, errors="replace")
    except FileNotFoundError:
        return {"outcome": "skipped", "reason": "gdr-check is not built"}
    except OSError as error:
        return {"outcome": "failed", "reason": f"gdr-check does not start: {error.strerror}"}
    except subprocess.TimeoutExpired:
        return {"outcome": "failed", "reason": f"gdr-check did not end within {limit} s and was stopped"}
    if done.returncode == SKIP:
        reason = last_line(done.stdout)
        # There is a GPU, and the driver shows it to this process, or not; all else is to be mended.
        return {"outcome": "skipped" if "CUDA_ERROR_NO_DEVICE" in reason else "failed", "reason": reason}
    last = last_line(done.stderr.strip() or done.stdout)
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        found = None
    section = {"found": found} if found else {}
    if found:
        found["behind_a_kernel_with_one_connection"] = with_one_connection(program, out, environment,
                                                                             end - time.monotonic())
    outcome, reason = judge(found)
    if outcome == "passed" and done.returncode != 0:
        outcome, reason = "failed", f"gdr-check ended with status {done.returncode}: {last}"
    elif not found:
        reason = f"gdr-check ended with status {done.returncode} and wrote no results: {last}"
    return {"outcome": outcome, "reason": reason, **section}


def last_line(text):
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def with_one_connection(program, out, environment, limit):
    """Rows as of `behind_a_kernel`, with CUDA_DEVICE_MAX_CONNECTIONS=1; empty: it did not end, or failed."""
    path = os.path.join(out, "gdr-one-connection.json")
    try:
        subprocess.run([*program, "--behind-only", "1", "--json", path], capture_output=True, timeout=max(limit, 1),
                       env={**environment, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}, stdin=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)["behind_a_kernel"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return []


def exports_of(row):
    return [export for export in row.get("exports", []) if export["exported"]]


def wrong_of_plain(found):
    """What is wrong with memory that every GPU has; empty: nothing."""
    row = next((row for row in found["memory"] if row["kind"] == PLAIN), None)
    if not row or not row["allocated"]:
        return f"not to be had: {row['why'] if row else 'it was not asked for'}"
    if "why" in row:
        return row["why"]
    if row["place"] != "device" or row["device"] != found["device"]:
        return f"said to be {row['place']} memory of device {row['device']}, is device {found['device']}'s"
    if row["before_address"] != 0 or row["size"] < row["asked_bytes"]:
        return f"an allocation of {row['size']} B that begins {row['before_address']} B before its address, of " \
               f"{row['asked_bytes']} B that were asked for"
    if not row["pci_address"] or not os.path.exists(os.path.join(PCI_DEVICES, row["pci_address"])):
        return f"PCI address '{row['pci_address']}', which is not in {PCI_DEVICES}"
    if found["attributes"]["dma_buf"] == 1 and not exports_of(row):
        return f"not exported, though the device says that it supports dma-bufs: {row['exports'][-1]['why']}"
    return ""


def judge(found):
    """('passed' | 'failed', why). What a driver refuses is an answer; wrong bytes, sizes and copies that wait are failures."""
    if not found:
        return "failed", "no results"
    wrong = wrong_of_plain(found)
    if wrong:
        return "failed", f"{PLAIN}: {wrong}"
    for row in found["memory"]:
        for export in exports_of(row):
            if export["end_of_fd"] != export["size"] or export["offset"] != 5000 % 4096:
                return "failed", f"{row['kind']}: a dma-buf of {export['end_of_fd']} B with the address at " \
                                 f"{export['offset']}, said to have {export['size']} B"
    for row in found["behind_a_kernel"]:
        if not row["ended_while_the_kernel_waited"]:
            return "failed", f"{row['copy']} did not end while a kernel waited: behind NCCL's it would wait forever"
    for row in found["beside_others"]:
        if row.get("capture", "CUDA_SUCCESS") != "CUDA_SUCCESS" or ("capture" in row and not row["ended"]):
            return "failed", f"beside {row['beside']}: the copy {'ended' if row['ended'] else 'did not end'}, the capture ended " \
                             f"with {row['capture']}"
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
    for row in found["beside_others"]:
        ended = "ended" if row["ended"] else "**did not end**"
        where = f"{row['beside']} ({row['capture']})" if "capture" in row else \
            f"a kernel that waited, another thread inside {row['beside']}"
        text.append(f"- a copy {ended} beside {where} ({row['us']:.0f} us)")
    text += ["", "| direction | bytes | way | median, us | quartiles | GB/s | wrong rounds |", "|---|---|---|---|---|---|---|"]
    for row in found["staging"]:
        text.append(f"| {row['direction']} | {row['bytes']} | {row['way']} | {row['median_us']:.1f} | {row['q1_us']:.1f} to "
                    f"{row['q3_us']:.1f} | {row['gbytes_per_s']:.2f} | {row['wrong_rounds']} of {row['rounds']} |")
    return text
