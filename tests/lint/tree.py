"""What the lint tests share: which files belong to the project, and C++ text without comments and literals."""

import argparse
import os
import re
import subprocess
import sys

SKIP = 77  # the exit status that CTest counts as skipped
CXX = (".h", ".cc", ".cu")
GENERATED_DIRS = {".git", "build", ".cache", "__pycache__"}


def files(root):
    """Paths relative to `root`, '/'-separated, sorted: what git tracks or would add; a plain walk without git."""
    if os.path.exists(os.path.join(root, ".git")):
        listing = subprocess.run(
            ["git", "-C", root, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True)
        if listing.returncode == 0:
            names = listing.stdout.decode().split("\0")
            return sorted(name for name in set(names) if name and os.path.isfile(os.path.join(root, name)))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in GENERATED_DIRS]
        found += [os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/") for name in names]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as stream:
        return stream.read()


_LITERALS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^\s()\\]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def code_only(text):
    """C++ `text` with comments and literals blanked; line numbers stay."""
    return _LITERALS.sub(lambda match: "\n" * match.group().count("\n") or " ", text)


def room_of(path, rooms):
    """The longest name in `rooms` that is `path`'s folder or file prefix; None if there is none."""
    best = None
    for room in rooms:
        if (path == room or path.startswith(room + "/") or path.startswith(room + ".")) and len(room) > len(best or ""):
            best = room
    return best


def run(check, description):
    """Command line of a lint: `check(root)` yields 'file:line: what is wrong; how to fix it'."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."), help="the source tree")
    root = os.path.abspath(parser.parse_args().root)
    violations = sorted(set(check(root)))
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violation(s)" if violations else "no violation")
    sys.exit(1 if violations else 0)
