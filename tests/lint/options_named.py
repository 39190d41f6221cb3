#!/usr/bin/env python3
"""Each option that a document or a script gives to a command of clustar is one that it has."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import tree

# `clustar`, as it is written in text, and as scripts call it.
CALL = re.compile(r'(?:(?<![\w./-])clustar|bin/clustar|"\$clustar"|\$\{?clustar\}?) (?=[a-z])')
OPTION = re.compile(r"(?<=[\s\[(])--[a-z][a-z0-9-]*")
# In no --help: for processes that a command starts itself.
HIDDEN = {"--suite-worker"}
# Where a call ends: the line, unless it goes on, the code's mark, the next command, or what follows `--`.
END = re.compile(r"(?<!\\)\n|`|\||;|&&|\s#\s|\s--\s|\.\s|\)|<")


def calls(text):
    """(offset, command words and what follows them) of each."""
    for call in CALL.finditer(text):
        rest = text[call.end():]
        end = END.search(rest)
        yield call.start(), rest[:end.start()] if end else rest


def command_of(root, words):
    """The innermost command that `words` name, and its path; None: not one of clustar's."""
    command, path = root, ["clustar"]
    for word in words:
        inner = next((one for one in command["commands"] if one["name"] == word), None)
        if inner is None:
            break
        command, path = inner, [*path, word]
    return (command, " ".join(path)) if len(path) > 1 else (None, "")


def check(root, options):
    for name in tree.files(root):
        if not (name.endswith(".md") or name.startswith(("scripts/", "examples/"))) or name.startswith(("CHANGELOG", "docs/results/")):
            continue
        text = tree.read(root, name)
        for at, call in calls(text):
            command, path = command_of(options, call.split())
            if command is None:
                continue
            known = {one for option in command["options"] for one in option["names"]}
            for option in OPTION.findall(call):
                if option not in known | HIDDEN:
                    line = text.count("\n", 0, at) + 1
                    yield f"{name}:{line}: {path} has no option {option}; see {path} --help"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--clustar", required=True, help="the command clustar")
    arguments = parser.parse_args()
    printed = subprocess.run([arguments.clustar, "--option-tree"], capture_output=True, text=True, check=True).stdout
    violations = list(check(str(arguments.root), json.loads(printed)))
    print("\n".join(violations) or "no violation")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
