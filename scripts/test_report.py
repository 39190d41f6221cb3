#!/usr/bin/env python3
"""Reads the JUnit file that ctest wrote: prints failed and skipped tests, and last 'passed failed skipped'."""

import re
import sys
import xml.etree.ElementTree

SHOWN_LINES = 40


def judge(case):
    """('passed' | 'failed' | 'skipped', why)"""
    status = case.get("status")
    if status == "run":
        return "passed", ""
    if status == "disabled":
        return "skipped", "disabled in its CMakeLists.txt"
    message = "" if case.find("skipped") is None else case.find("skipped").get("message") or ""
    if status == "notrun" and message.startswith("SKIP_"):
        # Our scripts print 'SKIP: reason'; GoogleTest prints the reason under 'file:line: Skipped'.
        text = case.findtext("system-out") or ""
        reason = re.search(r"^SKIP: (.+)$", text, re.MULTILINE) or re.search(r": Skipped\n(?!\[)(.+)", text)
        return "skipped", reason[1].strip() if reason else "no reason printed"
    # A test whose program is missing is 'notrun' as well: that is a failure, not a skip.
    return "failed", f": {message}" if message else ""


def main():
    try:
        cases = list(xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print(f"no test results: {error}", file=sys.stderr)
        return 1
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases:
        outcome, detail = judge(case)
        counts[outcome] += 1
        if outcome == "skipped":
            print(f"SKIPPED {case.get('name')}: {detail}")
        elif outcome == "failed":
            print(f"FAILED {case.get('name')} after {float(case.get('time') or 0):.1f} s{detail}")
            lines = (case.findtext("system-out") or "").strip().splitlines()
            print("\n".join("  | " + line for line in lines[-SHOWN_LINES:]) or "  | (no output: see the time limit)")
    print(*counts.values())
    return 0


if __name__ == "__main__":
    sys.exit(main())
