#!/usr/bin/env python3
"""The tables of settings in the documents are what the code declares: between the marks
`<!-- clustar settings --markdown PREFIX -->` and `<!-- end -->` stands what that command prints."""

import argparse
import pathlib
import re
import subprocess
import sys

DOCUMENTS = ("docs/settings.md", "docs/verbs.md", "docs/libfabric.md", "docs/dpdk.md")
MARKED = re.compile(r"(<!-- clustar settings --markdown ?(\S*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def printed(clustar, prefix):
    done = subprocess.run([clustar, "settings", "--markdown", *([prefix] if prefix else [])], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{clustar} settings --markdown {prefix}: {done.stderr.strip()}")
    return done.stdout


def check(root, clustar, write):
    """Violations; with `write` the documents are made right instead."""
    for name in DOCUMENTS:
        path = root / name
        text = path.read_text()
        if not MARKED.search(text):
            yield f"{name}: no table of settings is marked; nothing would be compared"
            continue
        right = MARKED.sub(lambda mark: mark[1] + printed(clustar, mark[2]) + mark[4], text)
        if write:
            path.write_text(right)
        elif right != text:
            yield f"{name}: its settings are not those of the code; run tests/lint/settings_doc.py --clustar {clustar} --write"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--clustar", required=True, help="the command clustar")
    parser.add_argument("--write", action="store_true", help="write the tables instead of comparing them")
    arguments = parser.parse_args()
    violations = list(check(arguments.root, arguments.clustar, arguments.write))
    print("\n".join(violations) or "settings: documents and code agree")
    sys.exit(1 if violations else 0)
