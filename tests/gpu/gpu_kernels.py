"""Our kernels in a GPU check: runs kernel-check, plainly and under compute-sanitizer where that is installed."""

import json
import os
import shutil
import subprocess
import time

LIMIT_S = 90
SANITIZER_LIMIT_S = 60
TOOLS = ("memcheck", "racecheck")


def run(program, work, environment, limit=LIMIT_S, driver="", sanitizer=None):
    """The section `kernels` of results.json: outcome, reason, found (kernel-check's JSON), sanitizer.

    program: words; driver: a file, or empty for what the loader finds; sanitizer: compute-sanitizer's path, looked for by default.
    """
    path = os.path.join(work, "kernels.json")
    end = time.monotonic() + limit
    if not os.path.isfile(program[0]):
        return {"outcome": "skipped", "reason": f"kernel-check is not built ({program[0]})"}
    where = ["--driver", driver] if driver else []
    said = ended([*program, *where, "--json", path], environment, limit)
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        found = None
    if found is None:
        # Called where there is a GPU, or the emulated one: none found is a fault.
        return {"outcome": "failed", "reason": said[1] if said else "kernel-check wrote no results"}
    section = {"found": found, "sanitizer": sanitized(program, where, environment, found, end, sanitizer)}
    wrong = [f"{row['kernel']}: {row['reason']}" for row in found["kernels"] if not row["right"]]
    wrong += [f"compute-sanitizer {row['tool']}: {row['reason']}" for row in section["sanitizer"] if row["outcome"] == "failed"]
    if said and not wrong:
        wrong = [said[1]]
    slow = [row["kernel"] for row in found["kernels"] if row.get("speed", {}).get("of_copy", 1) < 0.8]
    reason = f"{len(found['kernels'])} kernels agree with float64" + (" (emulated)" if found["emulated"] else "")
    if slow:
        reason += f"; below 0.8 of a copy's bandwidth: {', '.join(slow)}"
    return {"outcome": "failed" if wrong else "passed", "reason": "; ".join(wrong) or reason, **section}


def ended(command, environment, limit):
    """Nothing, or (status, what is wrong)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, stdin=subprocess.DEVNULL,
                              errors="replace")
    except OSError as error:
        return 1, f"{os.path.basename(command[0])} does not start: {error.strerror}"
    except subprocess.TimeoutExpired:
        return 1, f"{os.path.basename(command[0])} did not end within {limit:.0f} s and was stopped"
    if done.returncode == 0:
        return None
    lines = (done.stdout.strip() + "\n" + done.stderr.strip()).strip().splitlines() or ["it said nothing"]
    return done.returncode, f"ended with status {done.returncode}: {lines[-1]}"


def sanitized(program, where, environment, found, end, sanitizer):
    if found["emulated"]:
        return [{"tool": "both", "outcome": "skipped", "reason": "the emulated kernels run under AddressSanitizer in gdr_kernels_test"}]
    sanitizer = sanitizer or shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not sanitizer:
        return [{"tool": "both", "outcome": "skipped", "reason": "compute-sanitizer is not installed (CUDA toolkit)"}]
    rows = []
    for tool in TOOLS:
        left = end - time.monotonic()
        if left < 5:
            rows.append({"tool": tool, "outcome": "skipped", "reason": "no time left"})
            continue
        said = ended([sanitizer, "--tool", tool, "--error-exitcode", "9", *program, *where, "--check-only", "--max", "65536"],
                     environment, min(SANITIZER_LIMIT_S, left))
        rows.append({"tool": tool, "outcome": "failed" if said else "passed", "reason": said[1] if said else "no error"})
    return rows


def lines(section):
    """Of results.md."""
    if not section or not section.get("found"):
        return []
    found = section["found"]
    out = ["", "## Kernels" + (", emulated" if found["emulated"] else ""), "",
           f"Arrays of {found['bytes']} bytes; a copy is cuMemcpyDtoD, in turns with the kernel.", "",
           "| kernel | against float64 | speed | of a copy's bandwidth |", "|---|---|---|---|"]
    for row in found["kernels"]:
        speed = row.get("speed")
        rate = ratio = "-"
        if speed and "of_copy" in speed:
            rate = f"{speed['bytes_per_s'] / 1e9:.0f} GB/s"
            ratio = f"{speed['of_copy']:.2f} [{speed['of_copy_least']:.2f}, {speed['of_copy_most']:.2f}]"
        elif speed:
            rate = f"{speed['tflops']:.2f} TFLOP/s"
        else:
            rate = row.get("speed_reason", "-")
        out.append(f"| {row['kernel']} | {'right' if row['right'] else '**' + row['reason'] + '**'} | {rate} | {ratio} |")
    out += ["", *(f"- compute-sanitizer {row['tool']}: {row['outcome']}, {row['reason']}" for row in section["sanitizer"])]
    return out
