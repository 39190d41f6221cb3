#!/usr/bin/env python3
"""What is compiled for one instruction set defines its table and nothing else that the linker sees (paraexpress/sums/kernels.h).

A function that another file could define, too, may be kept from either, and an old processor would meet the new one's code.
"""

import re
import subprocess
import sys

OBJECT = re.compile(r"^(\S*avx\S*\.o(?:bj)?):$")
SYMBOL = re.compile(r"^[0-9a-f]+ ([A-Zuvw]) (\S+)$")  # of nm: lower case is local, but for u, v and w
TABLE = re.compile(r"k\w+Kernels")


def check(listing):
    """Violations in what `nm -C` says of an archive."""
    member, tables = None, {}
    for line in listing.splitlines():
        if line.endswith(":"):
            match = OBJECT.match(line)
            member = match[1] if match else None
            if member:
                tables[member] = 0
        elif member and (match := SYMBOL.match(line.replace(" ", "\0", 2).replace(" ", "").replace("\0", " "))):
            if match[1] in "DR" and TABLE.search(match[2]):
                tables[member] += 1
            else:
                yield f"{member}: defines {match[2]}, which another file could, too"
    for name, count in tables.items():
        if count != 1:
            yield f"{name}: defines {count} tables, not 1"
    if not tables:
        yield "no object of an instruction set; nothing would be proven"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} ARCHIVE")
    done = subprocess.run(["nm", "-C", sys.argv[1]], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"nm {sys.argv[1]}: {done.stderr.strip()}")
    violations = list(check(done.stdout))
    print("\n".join(violations) or f"one table each: {sys.argv[1]}")
    sys.exit(1 if violations else 0)
