#!/usr/bin/env python3
"""What users load into their process brings nothing of its own: NEEDED, exports, UNIQUE symbols, search paths, stack."""

import argparse
import os
import re
import subprocess
import sys

NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def check(library, exports, needed=frozenset()):
    """Violations of `library`, which is to export exactly the names in `exports`, and may need `needed`, too."""
    dynamic = output("readelf", "--wide", "--dynamic", library)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if name not in NEEDED | needed:
            fix = "link it static (-static-libstdc++ -static-libgcc)" if name.startswith(("libstdc++", "libgcc")) \
                else "move what needs it into a module that is opened at run time"
            yield f"needs {name}, which may clash in the user's process: {fix}"
    for tag, value in re.findall(r"\((RPATH|RUNPATH|TEXTREL)\)\s+(.*)", dynamic):
        yield f"has {tag} {value.strip()}: {'build with -fPIC' if tag == 'TEXTREL' else 'link without a search path'}"

    found = set()
    for line in output("nm", "--dynamic", "--defined-only", library).splitlines():
        _, kind, name = line.split(maxsplit=2)
        name = name.split("@")[0]
        if kind == "u":
            yield f"UNIQUE symbol {name}: it keeps the library in memory after dlclose; build with -fno-gnu-unique"
        if kind != "A":
            found.add(name)
    for name in sorted(found - exports):
        yield f"exports {name}: the version script must end in local: *"
    for name in sorted(exports - found):
        yield f"does not export {name}"

    segments = output("readelf", "--wide", "--program-headers", library)
    stack = re.search(r"GNU_STACK\s+(?:0x\w+\s+){5}(\S+(?: \S+)?)\s+0x", segments)
    if not stack or "E" in stack[1]:
        yield "asks for an executable stack: link with -z noexecstack"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("exports", nargs="+", help="every dynamic symbol that it may and must export")
    parser.add_argument("--may-need", action="append", default=[], help="a library that a module is for")
    arguments = parser.parse_args()
    if not os.path.exists(arguments.library):
        sys.exit(f"{arguments.library} is not built: build all targets first")
    violations = list(check(arguments.library, set(arguments.exports), set(arguments.may_need)))
    for violation in violations:
        print(f"{arguments.library}: {violation}")
    print("" if violations else f"thin: {arguments.library}, {len(arguments.exports)} exports")
    sys.exit(1 if violations else 0)
