"""Registers and spills of each kernel, of what `ptxas -v` said to the build: none may spill.

usage: registers.py [--table] FILE...
"""

import pathlib
import re
import sys

KERNEL = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers.*?(?:(\d+) bytes smem)?(?:,|$)")
SHARED = re.compile(r"(\d+) bytes smem")


def read(text):
    """{(kernel, architecture): (registers, shared bytes, spilled bytes)}"""
    found, now, spilled = {}, None, 0
    for line in text.splitlines():
        if match := KERNEL.search(line):
            now, spilled = (match[1], match[2]), 0
        elif match := SPILLS.search(line):
            spilled = int(match[1]) + int(match[2])
        elif (match := USED.search(line)) and now:
            shared = SHARED.search(line)
            found[now] = (int(match[1]), int(shared[1]) if shared else 0, spilled)
    return found


def table(found):
    architectures = sorted({architecture for _, architecture in found})
    yield "| kernel | " + " | ".join(architectures) + " | shared, bytes | spilled, bytes |"
    yield "|---|" + "---|" * (len(architectures) + 2)
    for kernel in sorted({kernel for kernel, _ in found}):
        each = [found[kernel, architecture] for architecture in architectures]
        yield f"| `{kernel}` | " + " | ".join(str(one[0]) for one in each) + f" | {each[0][1]} | {max(one[2] for one in each)} |"


def main(argv):
    show = argv[:1] == ["--table"]
    found = {}
    for name in argv[1:] if show else argv:
        found.update(read(pathlib.Path(name).read_text(encoding="utf-8")))
    if not found:
        print("no kernel in what ptxas said: nothing would be proven")
        return 1
    if show:
        print("\n".join(table(found)))
    spilling = [f"{kernel} for {architecture} spills {one[2]} bytes" for (kernel, architecture), one in found.items() if one[2]]
    print("\n".join(spilling) or f"no spill in {len(found)} compilations")
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
