#!/usr/bin/env python3
"""Every bash script stops at its first error (set -euo pipefail), can be executed, and satisfies shellcheck."""

import os
import shutil
import subprocess

import tree


def check(root):
    scripts = []
    for path in tree.files(root):
        if path.endswith(".sh") or path.startswith(("scripts/", ".ci/")) and "." not in path.rsplit("/", 1)[-1]:
            text = tree.read(root, path)
            if text.startswith("#!/usr/bin/env bash\n"):
                scripts.append(path)
                if "\nset -euo pipefail\n" not in text:
                    yield f"{path}:1: set -euo pipefail is missing"
            elif not text.startswith("#!"):
                yield f"{path}:1: no #! line"
            if not os.access(os.path.join(root, path), os.X_OK):
                yield f"{path}:1: not executable: chmod +x {path}"
    if scripts and shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "--format=gcc", *scripts], cwd=root, capture_output=True, text=True)
        yield from (line for line in (done.stdout + done.stderr).splitlines() if line)


if __name__ == "__main__":
    if not shutil.which("shellcheck"):
        print("SKIP: shellcheck is not installed; scripts/setup installs it")
        raise SystemExit(tree.SKIP)
    tree.run(check, __doc__)
