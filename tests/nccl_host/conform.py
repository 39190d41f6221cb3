"""The part of `clustar conform --nccl` that runs NCCL: cases over any net plugin, each with a verdict.

usage: conform.py --plugin FILE|socket [--source DIR|TARBALL] [--only PATTERN] [--timeout S] [--freeze S]
                  [--death-bound S] [--emulated-gpu] [--list]

Writes one JSON object per line to standard output: {"start": NAME} before a case, after it {"name", "group", "rule",
"source", "version", "outcome", "reason", "seconds"}; first of all {"nccl": VERSION, "library": FILE}. An error instead
is {"error": TEXT, "status": 1 or 2}: the exit status, too.
"""

import argparse
import collections
import contextlib
import fnmatch
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import cases
import conform_verdict
import library
import nccl_host
import source

# What a case may take beyond its own limit, after which it is ended from outside.
GRACE = 5
MOST_OUTPUT = 64 << 20
CALLS = 2
# Told of once it is there.
SHARED_MEMORY = re.compile(r"bytes of shared memory in (/dev/shm/nccl-\w{6})$", re.MULTILINE)
RANKS = (2, 3, 4, 8)
SIZES = cases.SIZES[:4]
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
PROXY = "transport/net.cc, sendProxyProgress and recvProxyProgress"

# words: the program's own; limit: seconds; environment: what it adds.
Case = collections.namedtuple("Case", "name rule source words limit environment")


def collectives(args):
    """Every pair of collective, datatype, number of ranks and size; operator and protocol turn along."""
    candidates = [(collective, kind, ranks, size) for collective in cases.COLLECTIVES for kind in cases.TYPES
                  for ranks in RANKS for size in SIZES]
    chosen = sorted(cases.covering(candidates), key=lambda values: cases.COLLECTIVES.index(values[0]))
    for number, (collective, kind, ranks, size) in enumerate(chosen):
        protocol, operator = cases.PROTOCOLS[(number + number // 10) % 2], cases.OPERATORS[number % 6]
        brief = f"{size >> 20}M" if size >> 20 else f"{size >> 10}K" if size >> 10 else f"{size}B"
        parts = [f"{ranks}x{brief}", kind, *([operator] if collective in REDUCING else []), protocol]
        words = ("nccl-host-perf", "-g", ranks, "-C", collective, "-d", kind, "-o", operator, "-b", size, "-n", CALLS)
        yield Case(f"{collective}.{'-'.join(parts)}", f"each of {ranks} ranks gets all bits right, and through the plugin",
                   PROXY, words, args.timeout * (2 if ranks == RANKS[-1] else 1), {"NCCL_PROTO": protocol})


# name: (words, what is relied on, where).
SCENARIOS = {
    "split": ((), "communicators split from one, with and without shared resources, all work", "init.cc, ncclCommSplit"),
    "communicators": ((), "three communicators of a process work in turn, at once and from a thread each",
                      "proxy.cc, one progress thread each"),
    "groups": ((), "several collectives in a group, several sends to each peer", "group.cc, ncclGroupEnd"),
    "nonblocking": ((), "a communicator that is polled comes to be, works and ends", "init.cc, ncclCommInitRankConfig"),
    "many": (("-n", 16), "16 communicators, one after the other, leave no memory, descriptor or thread behind",
             "plugin/net.cc, ncclNetFinalize"),
    "kill": (("-a", 1), "a rank is killed: the others get an error, and abort within 5 s", "transport/net.cc, test; init.cc, ncclCommAbort"),
    "abort": (("-a", 1), "a rank aborts: the others get an error, and abort within 5 s", "init.cc, ncclCommAbort"),
    "stop": ((), "a rank is stopped and goes on: no error", PROXY),
    "abort_stopped": (("-a", 1), "a rank is stopped: the others abort within 5 s", "init.cc, ncclCommAbort"),
}


def scenarios(args):
    for name, (words, rule, where) in SCENARIOS.items():
        own = ("-s", args.freeze) if name == "stop" else ("-e", args.death_bound) if name in ("kill", "abort", "abort_stopped") else ()
        limit = args.timeout * (2 if name == "many" else 1) + (args.freeze if name == "stop" else args.death_bound if own else 0)
        # The test of descriptors and memory wants a pair of ranks only, and NCCL to keep the plugin (nccl#1978).
        ranks = 2 if name == "many" else 3
        yield Case(f"scenario.{name}", rule, where, ("nccl-host-scenarios", name, "-g", ranks, "-b", "128K", *words, *own),
                   limit, {})


def matches(name, only):
    """As `clustar conform --only`."""
    patterns = [pattern for pattern in only.split(",") if pattern]
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) or (not set("*?[") & set(pattern) and pattern in name)
                               for pattern in patterns)


def selected(args):
    every = [*collectives(args), *scenarios(args)]
    exact = [case for case in every if case.name == args.only]
    return exact or [case for case in every if matches(case.name, args.only)]


class Stopped(BaseException):
    """By a signal."""


def stop(number, _frame):
    signal.signal(number, signal.SIG_IGN)
    raise Stopped(number)


def run(case, environment):
    """(status, output, NCCL's logs) of a program; status None: it was ended from outside."""
    command = ["env", *map(str, case.words), "-T", str(case.limit)]
    with tempfile.TemporaryDirectory(prefix="clustar-conform-") as folder, tempfile.TemporaryFile() as out:
        # A log for each process: in one, lines of several mix.
        every = {**environment, **case.environment, "NCCL_DEBUG_FILE": f"{folder}/%p"}
        with subprocess.Popen(command, env=every, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                              start_new_session=True) as process:
            status = None
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(case.limit + GRACE)
            finally:
                # Whatever the plugin started ends with it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                log = "\n".join(map(read, sorted(pathlib.Path(folder).iterdir())))
                forget_shared_memory(log)
        out.seek(0)
        return status, out.read(MOST_OUTPUT).decode(errors="replace"), log


def read(path):
    with path.open("rb") as stream:
        return stream.read(MOST_OUTPUT).decode(errors="replace")


def forget_shared_memory(log):
    """33 MB, which NCCL leaves behind where it is killed early."""
    for path in SHARED_MEMORY.findall(log):
        with contextlib.suppress(OSError):
            os.unlink(path)


def settings(args, built):
    environment = nccl_host.environment(built)
    # Whether NCCL falls back on its own sockets is for the case to find out; NCCL_NET would forbid it.
    environment.pop("NCCL_NET", None)
    environment.update(NCCL_NET_PLUGIN=args.plugin, NCCL_NET_PLUGIN_REF_COUNT="1", NCCL_DEBUG="INFO",
                       NCCL_DEBUG_SUBSYS="INIT,NET,ALLOC")
    if args.plugin == conform_verdict.SOCKET:
        environment.update(NCCL_NET_PLUGIN="none", NCCL_NET="Socket")
    if args.emulated_gpu:
        environment["NCCL_NET_GDR_LEVEL"] = "SYS"
    return environment


def say(**what):
    print(json.dumps(what), flush=True)


def verdicts(args, tree, built):
    environment = settings(args, built)
    for case in selected(args):
        say(start=case.name)
        begin = time.monotonic()
        status, output, log = run(case, environment)
        took = time.monotonic() - begin
        seen = conform_verdict.Seen(output, log, tree)
        outcome, reason = conform_verdict.verdict(seen, status, case, args)
        say(name=case.name, group=case.name.split(".")[0], rule=case.rule, source=case.source, version=seen.table,
            outcome=outcome, reason=reason, seconds=took)


def arguments(argv):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--plugin", default=conform_verdict.SOCKET)
    parser.add_argument("--source")
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=int, default=30)
    parser.add_argument("--freeze", type=int, default=2)
    parser.add_argument("--death-bound", type=int, default=10)
    parser.add_argument("--emulated-gpu", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(argv)


def failed(text, status):
    say(error=text, status=status)
    return status


def main(argv):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    args = arguments(argv)
    if not selected(args):
        return failed(f"no case matches '{args.only}'; --nccl --list shows them all", 2)
    if args.list:
        for case in selected(args):
            say(name=case.name, rule=case.rule, source=case.source)
        return 0
    build = nccl_host.ROOT / "build/nccl-host"
    try:
        tree = source.find(args.source, os.environ.get("CLUSTAR_NCCL_SOURCE"), nccl_host.ROOT.parent / "shared/data/nccl",
                           build)
        built = library.build(tree, build, os.cpu_count())
    except (source.NotHere, source.Wrong) as error:
        return failed(str(error).replace("--source", "--nccl-source"), 2)
    except library.Failed as error:
        return failed(f"NCCL's library could not be built: {error}", 1)
    say(nccl=".".join(map(str, source.version(tree))), library=str(built))
    verdicts(args, tree, built)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Stopped as stopped:
        sys.exit(128 + stopped.args[0])
    except BrokenPipeError:
        # Who reads the lines is gone; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
