#!/usr/bin/env python3
"""Reads the JUnit file that ctest wrote: prints failed and skipped tests, and last 'passed failed skipped'.

usage: test_report.py RESULTS.xml [FAILED.txt STAGE]
FAILED.txt: what failed is added there in short, as of STAGE.

An entry `program.NAME.N` is a part of a program of GoogleTest (tests/CMakeLists.txt); each test in it counts.
"""

import re
import sys
import xml.etree.ElementTree

SHOWN_LINES = 40
SHORT_LINES = 10
COUNT = re.compile(r"\[==========\] Running (\d+) tests? from ")
ENDED = re.compile(r"\[==========\] \d+ tests? from .* ran\.")
BEGINS = re.compile(r"^\[ RUN      \] (.+)$")
# A test's own output may stand before it on the line.
ENDS = re.compile(r"\[(       OK|  FAILED |  SKIPPED) \] (\S+?),?( where .*)? \(\d+ ms\)$")
OUTCOMES = {"       OK": "passed", "  FAILED ": "failed", "  SKIPPED": "skipped"}


def reason(text):
    # Our scripts print 'SKIP: reason'; GoogleTest prints the reason under 'file:line: Skipped'.
    found = re.search(r"^SKIP: (.+)$", text, re.MULTILINE) or re.search(r": Skipped\n(?!\[)(.+)", text)
    return found[1].strip() if found else "no reason printed"


def judge(case):
    """('passed' | 'failed' | 'skipped', why)"""
    status = case.get("status")
    if status == "run":
        return "passed", ""
    if status == "disabled":
        return "skipped", "disabled in its CMakeLists.txt"
    message = "" if case.find("skipped") is None else case.find("skipped").get("message") or ""
    if status == "notrun" and message.startswith("SKIP_"):
        return "skipped", reason(case.findtext("system-out") or "")
    # A test whose program is missing is 'notrun' as well: that is a failure, not a skip.
    return "failed", f": {message}" if message else ""


def judge_program(case):
    """[(outcome, name, why, output)] of its tests, and of the program itself where it did not end as it should."""
    text = case.findtext("system-out") or ""
    tests, name, begin = [], "", 0
    lines = text.splitlines()
    for at, line in enumerate(lines):
        begins, ends = BEGINS.match(line), ENDS.search(line)
        if begins:
            name, begin = begins[1], at
        elif ends and ends[2] == name:
            outcome, output = OUTCOMES[ends[1]], "\n".join(lines[begin:at + 1])
            tests.append((outcome, name, reason(output) if outcome == "skipped" else "", output))
    wanted = COUNT.search(text)
    whole = wanted and ENDED.search(text) and len(tests) == int(wanted[1])
    # By exit(0) it may end in the middle, and CTest is content; a leak is found after the last test.
    if not whole or case.get("status") != "run" and all(outcome != "failed" for outcome, *_ in tests):
        ran = f"{len(tests)} of {wanted[1]} tests ended" if wanted else judge(case)[1].lstrip(": ")
        tests.append(("failed", case.get("name"), f": {ran}", text))
    return tests


def in_short(lines):
    """What a test of GoogleTest that ended found first, or how another one ended."""
    if lines and ENDS.search(lines[-1]):
        for at, line in enumerate(lines):
            if line.endswith(": Failure"):
                return lines[at:at + SHORT_LINES]
    # Programs of several cases, tests/rdma/programs.py for one, begin a failed case's line so.
    return [line for line in lines if line.startswith("FAIL ")][:SHORT_LINES] or lines[-SHORT_LINES:]


def quoted(lines):
    return "\n".join("  | " + line for line in lines) or "  | (no output: see the time limit)"


def main():
    short = []
    try:
        cases = list(xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print(f"no test results: {error}", file=sys.stderr)
        return 1
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases:
        if case.get("name").startswith("program."):
            tests = judge_program(case)
        else:
            outcome, detail = judge(case)
            tests = [(outcome, case.get("name"), detail, case.findtext("system-out") or "")]
        for outcome, name, detail, text in tests:
            counts[outcome] += 1
            if outcome == "skipped":
                print(f"SKIPPED {name}: {detail}")
            elif outcome == "failed":
                head = f"FAILED {name} after {float(case.get('time') or 0):.1f} s{detail}"
                lines = text.strip().splitlines()
                print(head, quoted(lines[-SHOWN_LINES:]), sep="\n")
                short += [f"{sys.argv[3] if len(sys.argv) > 3 else ''}: {head}", quoted(in_short(lines))]
    if len(sys.argv) > 2 and short:
        with open(sys.argv[2], "a", encoding="utf-8") as file:
            print(*short, sep="\n", file=file)
    print(*counts.values())
    return 0


if __name__ == "__main__":
    sys.exit(main())
