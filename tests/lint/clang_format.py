#!/usr/bin/env python3
"""Every C++ and CUDA file is as clang-format writes it."""

import shutil
import subprocess

import tree


def check(root, tool="clang-format"):
    paths = [path for path in tree.files(root) if path.endswith(tree.CXX)]
    if not paths:
        return
    done = subprocess.run([tool, "--dry-run", "--Werror", "--style=file", *paths], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        bad = {line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line}
        for path in sorted(bad):
            yield f"{path}:1: not formatted: clang-format -i {path}"
        if not bad:
            yield f"{tool}: {done.stderr.strip()}"


if __name__ == "__main__":
    if not shutil.which("clang-format"):
        print("SKIP: clang-format is not installed; scripts/setup installs it")
        raise SystemExit(tree.SKIP)
    tree.run(check, __doc__)
