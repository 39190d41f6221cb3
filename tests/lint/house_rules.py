#!/usr/bin/env python3
"""Small rules that a reader would otherwise have to check by eye; each check_* below is one rule."""

import os
import re

import tree

# Folders whose README is their parent's: one page says enough for both. So is every folder at the third level.
COVERED_BY_PARENT = ("tests/", "scripts/", ".ci/", "nccl_plugin/abi/")
README_LINES = 80
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
# Written in pieces so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.])/(" + "|".join(("work", "farm", "root", "home/[a-z]")) + r")(?=[/\w])|/tmp/bash_" + "jobs")
MARKER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
# What reads as a translation, and what to write instead. In pieces, as above.
WORDS = tuple((re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in (
    (r"\ban" + r"ew\b", "again, or: starts over"),
    (r"\bof l" + r"ate\b", "recent, recently"),
    (r"\bfor w" + r"ho\b", "name them: for callers that"),
    (r"\bwho" + r"(?:so)?ever\b", "name them: the thread that, a peer that, anybody who"),
    (r"\bwho s" + r"erves\b", "name it: the server"),
    (r"\bhim" + r"self\b|\bhe l" + r"ooks up\b", "they, or it"),
    (r"\bin the m" + r"idst\b", "in the middle"),
    (r"\bin the m" + r"ean\b", "on average"),
    (r"\bthe b" + r"egin of\b", "the start of"),
    (r"\bfor e" + r"ver\b", "forever"),
    (r"\bthere" + r"in\b|\bwh" + r"ence\b", "in it, from where"),
    (r"\bhee" + r"ds?\b", "obeys, follows"),
    (r"\bnone s" + r"uch\b", "no such"),
))
# Of pages and of C++ only: it is syntax in the shell.
ELSE = ((re.compile(r"(?<=[;,] )el" + r"se\b"), "otherwise"),)
USING = re.compile(r"^using (?:\w*::)+(\w+);", re.MULTILINE)
TEXT = tree.CXX + (".py", ".md", ".txt", ".cmake", ".json", ".toml", ".yml", ".map")


def at(text, position):
    return text.count("\n", 0, position) + 1


def is_text(path):
    return path.endswith(TEXT) or path.startswith(("scripts/", ".ci/"))


def check_readmes(root, paths):
    """Every folder with sources has a README of one page; links in Markdown lead somewhere."""
    folders = {path.rsplit("/", 1)[0] for path in paths if path.endswith(tree.CXX + (".py",)) and "/" in path}
    folders |= {folder.split("/")[0] for folder in folders} | ({"docs"} if any(p.startswith("docs/") for p in paths) else set())
    for folder in sorted(folders):
        covered = folder.count("/") > 1 or (folder + "/").startswith(COVERED_BY_PARENT) and folder != "tests"
        if not covered and f"{folder}/README.md" not in paths:
            yield f"{folder}/README.md:1: missing: what it is for, main types, who may include it, how to add one more"
    for path in paths:
        if not path.endswith(".md"):
            continue
        text = tree.read(root, path)
        if path.endswith("/README.md") and text.count("\n") > README_LINES:
            yield f"{path}:{README_LINES}: a folder's README is one page ({README_LINES} lines)"
        for match in LINK.finditer(text):
            if not os.path.exists(os.path.join(root, os.path.dirname(path), match[1])):
                yield f"{path}:{at(text, match.start())}: the link to {match[1]} leads nowhere"


def check_machine_paths(root, paths):
    """No path of the machine that something was written on."""
    for path in filter(is_text, paths):
        text = tree.read(root, path)
        for match in MACHINE_PATH.finditer(text):
            yield f"{path}:{at(text, match.start())}: '{match[0]}' is a path of one machine; users have no such path"


def check_markers(root, paths):
    """Work left over belongs into an issue, not into a file."""
    for path in filter(is_text, paths):
        text = tree.read(root, path)
        for match in MARKER.finditer(text):
            yield f"{path}:{at(text, match.start())}: {match[0]}: finish it or write an issue"


def check_words(root, paths):
    """Pages, comments and messages are in plain English: each phrase below has stopped a reader."""
    for path in paths:
        if not is_text(path):
            continue
        text = tree.read(root, path)
        for pattern, instead in WORDS + (ELSE if path.endswith(tree.CXX + (".md",)) else ()):
            for match in pattern.finditer(text):
                yield f"{path}:{at(text, match.start())}: '{match[0]}': write: {instead}"


def check_skips(root, paths):
    """A skipped test says why."""
    for path in paths:
        if not path.startswith("tests/"):
            continue
        text = tree.read(root, path)
        if path.endswith(tree.CXX):
            for match in re.finditer(r"GTEST_SKIP\(\)\s*(?!<<)\S", text):
                yield f"{path}:{at(text, match.start())}: GTEST_SKIP() without a reason: << \"why, and what would run it\""
            for match in re.finditer(r"\bTEST(_F|_P)?\(\s*\w+,\s*DISABLED_", text):
                yield f"{path}:{at(text, match.start())}: DISABLED_: skip at run time with a reason, or delete the test"
        elif path.endswith(".py"):
            for match in re.finditer(r"@unittest\.skip\b(?!\w|If|Unless)(?!\(\s*f?[\"'])|skipTest\(\s*\)", text):
                yield f"{path}:{at(text, match.start())}: a skip without a reason"


def check_temporary_files(root, paths):
    """Each test is a process, and several run at once: a file's name must be the process's own."""
    for path in paths:
        if not path.startswith("tests/") or not path.endswith(tree.CXX) or path == "tests/temp_path.h":
            continue
        text = tree.read(root, path)
        for match in re.finditer(r"\bTempDir\(\)\s*\+|temp_directory_path\(\)\s*/(?!\s*\"[^\"]*X{6})", text):
            yield f"{path}:{at(text, match.start())}: use tests/temp_path.h, or mkdtemp: other tests run beside this one"


def check_using(root, paths):
    """A using declaration of a file is used in it."""
    for path in paths:
        if not path.endswith(".cc"):
            continue
        code = tree.code_only(tree.read(root, path))
        for match in USING.finditer(code):
            if len(re.findall(rf"\b{match[1]}\b", code)) == len(re.findall(rf"\b{match[1]}\b", match[0])):
                yield f"{path}:{at(code, match.start())}: {match[0]} is not used"


def check_names(root, paths):
    """x.h and x.cc in lower_snake; every header is guarded once; a .cc includes its own header first."""
    for path in paths:
        if not path.endswith(tree.CXX):
            continue
        stem, extension = os.path.splitext(path)
        if not re.fullmatch(r"[a-z0-9_]+", stem.rsplit("/", 1)[-1]):
            yield f"{path}:1: file names are lower_snake"
        text = tree.read(root, path)
        if extension == ".h" and "#pragma once" not in text:
            yield f"{path}:1: a header starts with #pragma once"
        if extension == ".cc" and f"{stem}.h" in paths:
            first = re.search(r'^\s*#\s*include\s*[<"]([^>"]+)', text, re.MULTILINE)
            if not first or first[1] != f"{stem}.h":
                yield f"{path}:1: include \"{stem}.h\" first, which proves that the header stands alone"


def check(root):
    paths = tree.files(root)
    for rule in (check_readmes, check_machine_paths, check_markers, check_words, check_skips, check_temporary_files, check_using,
                 check_names):
        yield from rule(root, paths)


if __name__ == "__main__":
    tree.run(check, __doc__)
