#!/usr/bin/env python3
"""Soft limits of length: 500 lines a file, 250 a header. An exception is named here with its reason."""

import tree

FILE_LINES, HEADER_LINES = 500, 250
# path -> (lines it may have, why)
EXCEPTIONS = {}


def check(root):
    lengths = {}
    for path in tree.files(root):
        if path.endswith(tree.CXX + (".py", ".cmake")) or path.startswith("scripts/") and "." not in path.split("/")[-1]:
            lengths[path] = tree.read(root, path).count("\n")
    for path, lines in lengths.items():
        usual = HEADER_LINES if path.endswith(".h") else FILE_LINES
        limit = EXCEPTIONS.get(path, (usual, ""))[0]
        if lines > limit:
            yield f"{path}:{limit}: {lines} lines, the limit is {limit}: split it by concern, or name it in EXCEPTIONS"
    for path, (limit, _) in EXCEPTIONS.items():
        usual = HEADER_LINES if path.endswith(".h") else FILE_LINES
        if lengths.get(path, 0) <= usual:
            yield f"tests/lint/size_limits.py:1: the exception for {path} is no longer needed; remove it"


if __name__ == "__main__":
    tree.run(check, __doc__)
