#!/usr/bin/env python3
"""One file reads the environment; none changes it. Benches, tests and what runs a process of its own are free."""

import re

import tree

READER = "transport/base/config.cc"
# libfabric reads FI_UNIVERSE_SIZE from the environment only, once; the file says why, and puts it back.
CHANGER = "libfabric_shim/universe.cc"
FREE = ("bench/", "tests/")
READS = re.compile(r"\b(secure_getenv|getenv|environ|__environ)\b")
CHANGES = re.compile(r"\b(setenv|unsetenv|putenv|clearenv)\b")


def check(root):
    for path in tree.files(root):
        if not path.endswith(tree.CXX) or path.startswith(FREE):
            continue
        code = tree.code_only(tree.read(root, path))
        for pattern, free_files, fix in ((READS, (READER, CHANGER), f"read it in {READER}, where the banner can print its source"),
                                        (CHANGES, (CHANGER,), "a plugin never changes its process's environment")):
            if path in free_files:
                continue
            for match in pattern.finditer(code):
                yield f"{path}:{code.count(chr(10), 0, match.start()) + 1}: {match[0]}: {fix}"


if __name__ == "__main__":
    tree.run(check, __doc__)
