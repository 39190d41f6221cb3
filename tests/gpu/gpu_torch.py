"""Judges PyTorch training over a network (torch_train.py): replicas at the end, and every bit beside NCCL's own Socket.

Two ranks only: a sum of two floats has the same bits whatever network, algorithm or order made it.
"""

# By which factor the loss must at least fall, so that the gradients were of use.
PROGRESS = 0.9


def judge(reports, exact, reference):
    """(why it failed, "" if it did not; what was seen). `reference`: mode to digest of the Socket run, {} = none."""
    if not all(reports) or not all(report.get("trained") for report in reports):
        return "a rank wrote no training", None
    modes = [row["mode"] for row in reports[0]["trained"]]
    seen = {"torch": reports[0]["torch"], "steps": reports[0]["steps"], "ranks": len(reports), "modes": {},
            "totals": [report["totals"] for report in reports], "compared": [mode for mode in modes if mode in reference]}
    wrong = ""
    for i, mode in enumerate(modes):
        rows = [report["trained"][i] for report in reports]
        first = sum(row["losses"][0] for row in rows) / len(rows)
        last = sum(row["losses"][1] for row in rows) / len(rows)
        seen["modes"][mode] = {"digest": rows[0]["digest"], "bytes": rows[0]["bytes"], "losses": [first, last],
                               "step_s": max(row["step_s"] for row in rows)}
        if len({row["digest"] for row in rows}) != 1:
            wrong = wrong or f"{mode}: the replicas differ: {', '.join(row['digest'] for row in rows)}"
        if not last < first * PROGRESS:
            wrong = wrong or f"{mode}: the loss was {first:.4f}, is {last:.4f}"
        if exact and mode in reference and rows[0]["digest"] != reference[mode]:
            wrong = wrong or f"{mode}: parameters {rows[0]['digest']}, over NCCL's Socket {reference[mode]}"
    totals = [total for total in seen["totals"] if total]
    if totals and not all(total["sent_messages"] for total in totals):
        wrong = wrong or "the plugin sent no message"
    if exact and any(total["missing_bytes"] for total in totals):
        wrong = wrong or "bytes are missing where none may be"
    if not exact and not all(total["missing_bytes"] for total in totals):
        wrong = wrong or "nothing is missing, though the network lost packets and some may be"
    return wrong, seen


def reference_of(cases):
    """The Socket run's digests by mode, if it was run before."""
    for case in cases:
        if case["name"] == "torch-socket" and case.get("torch") and case["outcome"] == "passed":
            return {mode: row["digest"] for mode, row in case["torch"]["modes"].items()}
    return {}


def text(seen, exact):
    parts = [f"{mode} {row['losses'][0]:.4f} to {row['losses'][1]:.4f}, {1e3 * row['step_s']:.0f} ms per step"
             for mode, row in seen["modes"].items()]
    out = f"torch {seen['torch']}, {seen['steps']} steps, replicas bit-identical"
    if exact and seen["compared"]:
        out += f", and those of {' and '.join(seen['compared'])} equal to those over NCCL's Socket"
    totals = [total for total in seen["totals"] if total]
    if not exact:
        missing, eligible = (sum(total[key] for total in totals) for key in ("missing_bytes", "eligible_bytes"))
        out += f"; {missing} B missing of {eligible} B eligible ({100 * missing / max(eligible, 1):.2f} %)"
    return out + "; " + "; ".join(parts)


def lines(cases):
    rows = [(case, mode, row) for case in cases if case.get("torch") for mode, row in case["torch"]["modes"].items()]
    if not rows:
        return []
    out = ["", "## PyTorch, 2 ranks", "", "| case | mode | gradients | loss, first and last step | parameters | ms per step (median) |",
           "|---|---|---|---|---|---|"]
    out += [f"| {case['name']} | {mode} | {row['bytes'] / 1e6:.1f} MB | {row['losses'][0]:.4f}, {row['losses'][1]:.4f} | "
            f"{row['digest']} | {1e3 * row['step_s']:.1f} |" for case, mode, row in rows]
    return out
