#!/usr/bin/env python3
"""Writes Debian's changelog (gzip) from CHANGELOG.md, the newest version's part of it.

usage: debian_changelog.py CHANGELOG.md VERSION-REVISION OUTPUT.gz
"""

import datetime
import email.utils
import gzip
import os
import re
import sys
import textwrap

MAINTAINER = "clustar maintainers <maintainers@clustar.invalid>"


def main():
    source, version, output = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    release = version.rsplit("-", 1)[0]
    part = re.search(rf"^## {re.escape(release)} \((\d{{4}}-\d\d-\d\d)\)$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not part:
        sys.exit(f"{source} has no part '## {release} (YYYY-MM-DD)': write it before this version is built")
    entries = re.findall(r"^- (.*(?:\n  .*)*)", part[2], re.MULTILINE)
    lines = "\n".join(textwrap.fill(" ".join(entry.split()), 76, initial_indent="  * ", subsequent_indent="    ")
                      for entry in entries)
    day = datetime.datetime.fromisoformat(part[1]).replace(tzinfo=datetime.timezone.utc)
    entry = f"clustar ({version}) unstable; urgency=medium\n\n{lines}\n\n -- {MAINTAINER}  {email.utils.format_datetime(day)}\n"
    os.makedirs(os.path.dirname(output) or ".", exist_ok=True)
    with open(output, "wb") as file:
        file.write(gzip.compress(entry.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
