#!/usr/bin/env python3
"""clang-tidy (.clang-tidy) over the translation units of a configured build, in parallel; not over tests/, whose
GoogleTest macros would take half of the time.

A file whose text, headers, flags and checks are as in a clean run is not run again, in whichever clone of this user that
run was: what was clean is kept in ~/.cache/clustar (or XDG_CACHE_HOME). Of headers ours and generated ones count by their
contents, those of Debian packages by the packages' versions, and others by the contents of what is named in our files.
Files of one folder with the same flags are first run as one, which reads the headers once; where that finds anything, or
their names clash, each is run by itself. So what clang says of the main file alone is not seen: unused using
declarations, for which house_rules.py has a rule, and its warnings about constants and inline functions that nothing
uses.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time

import tree

# Flags that only g++ knows; clang-tidy would stop at them.
# PyTorch 1.13's headers use a vector of an incomplete type, which clang 14 with libstdc++ 12 takes for an error in C++20.
NOT_BY_CLANG = ("paraexpress/torch/",)
GCC_ONLY = {"-fno-gnu-unique", "-static-libstdc++", "-static-libgcc"}
BATCH = 8
MOST_REMEMBERED = 40_000  # fingerprints, 65 bytes each
UNITY = re.compile(r"/Unity/unity_\d+_cxx\.cxx$")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
SYSTEM_FOLDERS = ["/usr/local/include", "/usr/include", f"/usr/include/{platform.machine()}-linux-gnu"]
# Every file has headers of these, named or not.
TOOLCHAIN = ["libstdc++-*-dev", "libc6-dev", "linux-libc-dev", "libclang-common-*-dev", "clang-tidy*"]


def members(file):
    """The sources that CMake has joined to one (CMAKE_UNITY_BUILD), or the file itself."""
    if not UNITY.search(file):
        return [file]
    try:
        with open(file, encoding="utf-8") as stream:
            return INCLUDE.findall(stream.read())
    except OSError:
        return []


def load(root, build):
    """[(source path relative to root, folder, its command as arguments)], our sources only, each once."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        database = json.load(stream)
    sources = {}
    for entry in database:
        arguments = entry.get("arguments") or shlex.split(entry["command"])
        joined = os.path.join(entry["directory"], entry["file"])
        for file in members(joined):
            path = os.path.relpath(file, root).replace(os.sep, "/")
            if not path.endswith(".cc") or path.startswith(("..", "build/", "tests/", *NOT_BY_CLANG)):
                continue
            own = [argument for argument in arguments if argument not in GCC_ONLY]
            if file != joined:
                own = [file if argument == entry["file"] else argument for argument in own]
                if "-o" in own:
                    own[own.index("-o") + 1] = path + ".o"
            sources[path] = entry["directory"], own
    return [(path, *sources[path]) for path in sorted(sources)]


@functools.lru_cache(maxsize=None)
def headers_of(root, path):
    """`path` and, transitively, the headers of ours that it includes; and the names of other headers in these."""
    seen, others, todo = {path}, set(), [path]
    while todo:
        for name in INCLUDE.findall(tree.read(root, todo.pop())):
            if not os.path.isfile(os.path.join(root, name)):
                others.add(name)
            elif name not in seen:
                seen.add(name)
                todo.append(name)
    return frozenset(seen), frozenset(others)


def folders_of(arguments):
    """Where the compiler looks for headers, but the tree itself."""
    folders, left = [], iter(arguments)
    for argument in left:
        for flag in ("-isystem", "-I"):
            if argument == flag:
                folders.append(next(left, ""))
            elif argument.startswith(flag):
                folders.append(argument[len(flag):])
    return folders + SYSTEM_FOLDERS


@functools.lru_cache(maxsize=None)
def found(name, folders):
    """The file, or "" (the C++ library's own, which TOOLCHAIN stands for)."""
    return next((path for path in (os.path.join(folder, name) for folder in folders) if os.path.isfile(path)), "")


def query(*words):
    try:
        return subprocess.run(["dpkg-query", *words], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def versions_of(paths):
    """{path: "package version"} of those that come from packages, and the same for TOOLCHAIN's, as text."""
    owners = {}
    for line in query("-S", *paths).splitlines() if paths else []:
        package, _, path = line.rpartition(": ")
        owners[path] = package.split(", ")[0]
    told = "-W", "-f", "${binary:Package} ${Version}\n"
    lines = query(*told, *sorted(set(owners.values()))).splitlines() if owners else []
    versions = {line.split(" ")[0].split(":")[0]: line for line in lines}
    return ({path: versions.get(package.split(":")[0], package) for path, package in owners.items()},
            query(*told, *TOOLCHAIN))


class Outside:
    """Headers that are not in the tree, by what is known of them cheaply."""

    def __init__(self, root, sources):
        self.root = root
        paths = {path for source, _, command in sources for path in self.paths_of(source, command)}
        # A header in the tree's own build is generated, whatever package has one of that path.
        self.versions, self.toolchain = versions_of(sorted(path for path in paths if not path.startswith(root + os.sep)))

    def paths_of(self, source, command):
        folders = tuple(folders_of(command))
        return {found(name, folders) for name in headers_of(self.root, source)[1]} - {""}

    @functools.lru_cache(maxsize=None)
    def mark(self, path):
        if path in self.versions:
            return self.versions[path]
        with open(path, "rb") as stream:
            return os.path.basename(path) + " " + hashlib.sha256(stream.read()).hexdigest()

    def marks_of(self, source, command):
        return "\n".join([self.toolchain, *sorted({self.mark(path) for path in self.paths_of(source, command)})])


def fingerprint(root, path, arguments, config, outside):
    digest = hashlib.sha256(config)
    digest.update(path.encode() + b"\0" + "\0".join(argument.replace(root, ".") for argument in arguments).encode())
    for name in sorted(headers_of(root, path)[0]):
        digest.update(name.encode() + b"\0" + tree.read(root, name).encode())
    digest.update(b"\0" + outside.marks_of(path, arguments).encode())
    return digest.hexdigest()


def tidy(tool, database, root, path, limit):
    # The joined files may lie outside the tree, where no configuration would be found.
    command = [tool, "--quiet", f"--config-file={os.path.join(root, '.clang-tidy')}", "-p", database, "--extra-arg=-Wno-unknown-warning-option", os.path.join(root, path)]
    start = time.monotonic()
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return False, f"{path}: clang-tidy did not end within {limit} s", limit
    return done.returncode == 0, (done.stdout + done.stderr).strip(), time.monotonic() - start


def batches(sources, stale):
    """Lists of up to BATCH paths of `stale`, each of one folder and alike in everything but the names of files."""
    alike = {}
    for path, folder, command in sources:
        if path in stale:
            alike.setdefault((os.path.dirname(path), folder, tuple(flags_of(command))), []).append(path)
    return [paths[at:at + BATCH] for paths in alike.values() for at in range(0, len(paths), BATCH)]


def flags_of(command):
    """`command` without its source and what is written."""
    left, arguments = [], iter(command)
    for argument in arguments:
        if argument in ("-o", "-c", "-MT", "-MF"):
            next(arguments, None)
        elif argument != "-MD":
            left.append(argument)
    return left


def tidy_batch(run, paths, joined):
    """`run` on `joined`, which includes `paths`; [(path, clean, output, seconds)]."""
    if len(paths) > 1:
        good, _, seconds = run(joined)
        if good:
            return [(path, True, "", seconds / len(paths)) for path in paths]
    return [(path, *run(path)) for path in paths]


def remembered_path():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(home):  # no home is known
        return os.devnull
    return os.path.join(home, "clustar", "clang-tidy-clean")


def remembered(path):
    """The fingerprints of what was clean, a line each, the latest last."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read().split()
    except OSError:
        return []


def remember(marks, path):
    """Each at once, so that a run that is cut short keeps what it found out. Without a place to keep them, nothing is kept."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="ascii") as stream:  # short appends of several runs do not mix
            stream.write("".join(mark + "\n" for mark in marks))
    except OSError:
        pass


def forget_oldest(path):
    marks = list(dict.fromkeys(reversed(remembered(path))))
    if len(marks) > MOST_REMEMBERED:
        with open(f"{path}.{os.getpid()}", "w", encoding="ascii") as stream:
            stream.writelines(mark + "\n" for mark in reversed(marks[:MOST_REMEMBERED // 2]))
        os.replace(stream.name, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."), help="the source tree")
    parser.add_argument("--build", required=True, help="a configured build folder (compile_commands.json)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=int, default=180, help="seconds for one file")
    parser.add_argument("--tool", default="clang-tidy")
    arguments = parser.parse_args()
    root, build = os.path.realpath(arguments.root), os.path.realpath(arguments.build)
    if not shutil.which(arguments.tool):
        print("SKIP: clang-tidy is not installed; scripts/setup installs it")
        return tree.SKIP
    if not os.path.isfile(os.path.join(build, "compile_commands.json")):
        print(f"{build} is not configured: cmake --preset release")
        return 2

    sources = load(root, build)
    if not sources:
        print(f"{build} has no file of {root}: configure it from that tree")
        return 2
    database = os.path.join(build, "clang-tidy")
    os.makedirs(database, exist_ok=True)
    version = subprocess.run([arguments.tool, "--version"], capture_output=True).stdout
    config = tree.read(root, ".clang-tidy").encode() + version
    cache_path = remembered_path()
    cache = set(remembered(cache_path))
    outside = Outside(root, sources)
    wanted = {path: fingerprint(root, path, command, config, outside) for path, _, command in sources}
    stale = [path for path, mark in wanted.items() if mark not in cache]
    commands = {path: (folder, command) for path, folder, command in sources}
    entries = [{"directory": folder, "file": os.path.join(root, path), "arguments": command}
               for path, folder, command in sources]
    work = []
    for number, paths in enumerate(batches(sources, set(stale))):
        joined = os.path.join(database, f"batch_{number}.cc")
        with open(joined, "w", encoding="utf-8") as stream:
            stream.writelines(f'#include "{os.path.join(root, path)}"\n' for path in paths)
        folder, command = commands[paths[0]]
        entries.append({"directory": folder, "file": joined, "arguments": flags_of(command) + ["-c", joined]})
        work.append((paths, joined))
    with open(os.path.join(database, "compile_commands.json"), "w", encoding="utf-8") as stream:
        json.dump(entries, stream)

    def run(path):
        return tidy(arguments.tool, database, root, path, arguments.limit)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(tidy_batch, run, paths, joined) for paths, joined in work]
        for job in concurrent.futures.as_completed(jobs):
            for path, good, text, seconds in job.result():
                if not good:
                    failed += 1
                    print(f"{path} ({seconds:.0f} s):\n{text}", flush=True)
            remember([wanted[path] for path, good, _, _ in job.result() if good], cache_path)
    forget_oldest(cache_path)
    print(f"clang-tidy: {len(sources)} files, {len(sources) - len(stale)} unchanged since they were clean, {failed} bad")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
