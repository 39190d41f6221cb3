"""What NCCL calls of net, profiler and tuner plugin: order, threads, attributes; that the fake core of tests/plugin does the
same; that the tuner's masks are felt; what a user reads in the log, and which plugin NCCL takes for the next communicator.

usage: calls_test.py --plugin DIR --log LIBRARY --fake PROGRAM [--name PART]
DIR: where the plugin is; LIBRARY: libnccl_call_log.so; PROGRAM: fake_nccl_calls; PART: part of a check's name
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import at_once
import calls
import nccl_host

# Most of their time the ranks wait for each other.
AT_ONCE = 3


class Wrong(Exception):
    """What is not as it must be."""


def run(program, environment, folder=None, args=None):
    """`program` over NCCL's host code; with a folder its calls are written there."""
    environment = {**os.environ, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ENV,INIT,NET,TUNING,DESTROY", **environment}
    if folder:
        log = {name: args.log for name in ("NCCL_NET_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_TUNER_PLUGIN")}
        environment = {"NCCL_NET": "clustar", **log, "CALLLOG_PLUGIN": f"{args.plugin}/libnccl-net-clustar.so",
                       "CALLLOG_FILE": f"{folder}/%p", **environment}
    return nccl_host.run([*program.split(" "), "-T", "150"], environment)


def require(condition, what, done=None):
    if not condition:
        raise Wrong(what + (f" (status {done.returncode})\n{done.stdout[-1500:]}{done.stderr[-1000:]}" if done else ""))


def judged(folder, processes):
    paths = sorted(pathlib.Path(folder).iterdir())
    require(len(paths) == processes, f"{len(paths)} logs of {processes} processes")
    return [calls.Judge(calls.read(path)) for path in paths]


def one(pattern):
    """A change of the first line that has `pattern`; `\\1` and so on of it."""
    def change(lines, new):
        at = first_of(lines, pattern)
        return [*lines[:at], re.sub(pattern, new, lines[at]), *lines[at + 1:]]
    return change


def first_of(lines, pattern):
    for at, line in enumerate(lines):
        if re.search(pattern, line):
            return at
    raise Wrong(f"the log has no line with '{pattern}' to change")


def without(pattern):
    def change(lines):
        at = first_of(lines, pattern)
        return lines[:at] + lines[at + 1:]
    return change


def first_to_end(pattern):
    return lambda lines: without(pattern)(lines) + [lines[first_of(lines, pattern)]]


def all_to_end(pattern):
    return lambda lines: sorted(lines, key=lambda line: re.search(pattern, line) is not None)


def last_to_begin(pattern):
    def change(lines):
        at = len(lines) - 1 - first_of(lines[::-1], pattern)
        return [lines[at], *lines[:at], *lines[at + 1:]]
    return change


PLANTED = {
    "a step that was left out": without(r"type=ProxyStep step=1$"),
    "a step's number": lambda lines: one(r"type=ProxyStep step=1$")(lines, "type=ProxyStep step=2"),
    "a message without an event": without(r"type=NetPlugin"),
    "a collective's number": lambda lines: one(r" seq=1 ")(lines, " seq=2 "),
    "a number of steps": lambda lines: one(r" steps=(\d+) send=1")(lines, r" steps=1\1 send=1"),
    "another process": lambda lines: one(r" own=1 ")(lines, " own=0 "),
    "another function in setNetAttr": lambda lines: one(r" op=10 ")(lines, " op=8 "),
    "another protocol in setNetAttr": lambda lines: one(r" op=10 algo=2 proto=4")(lines, " op=10 algo=2 proto=1"),
    "no setNetAttr before a connection": without(r"setNetAttr .* op=ffffffff"),
    "no setNetAttr before a message": without(r"setNetAttr .* op=10 "),
    "requests that are done too late": all_to_end(r"net done"),
    "a stop of a step that never comes": without(r"profiler stop"),
    "the net plugin's end first": last_to_begin(r"net finalize"),
    "the profiler's beginning last": first_to_end(r"profiler init"),
}


def check_the_judge(path):
    lines = path.read_text().splitlines()
    for name, change in PLANTED.items():
        path.write_text("\n".join(change(list(lines))) + "\n")
        try:
            calls.Judge(calls.read(path))
        except calls.Deviation:
            continue
        raise Wrong(f"planted, and not seen: {name}")


def order(args):
    """NCCL's calls follow the rules, the fake core's too, and both have the same shapes."""
    with tempfile.TemporaryDirectory() as real, tempfile.TemporaryDirectory() as fake:
        done = run("nccl-host-scenarios groups -g 2 -b 128K", {"CLUSTAR_TRANSPORT": "tcp"}, real, args)
        require(done.returncode == 0, "NCCL's run failed", done)
        judges = judged(real, 2)
        made = subprocess.run([args.fake, args.log], capture_output=True, text=True, check=False, env={
            **os.environ, "CLUSTAR_SOCKET_IFNAME": "lo", "CLUSTAR_TRANSPORT": "tcp", "CALLLOG_FILE": f"{fake}/%p",
            "CALLLOG_PLUGIN": f"{args.plugin}/libnccl-net-clustar.so"})
        require(made.returncode == 0, "the fake core failed", made)
        nccl, ours = (set().union(*(judge.shapes for judge in each)) for each in (judges, judged(fake, 1)))
        require(nccl == ours, f"only NCCL: {sorted(nccl - ours)}; only the fake core: {sorted(ours - nccl)}")
        sent = sum(judge.counts["isend"] for judge in judges)
        require(sent >= 200, f"only {sent} sends")
        check_the_judge(next(pathlib.Path(real).iterdir()))


def order_of(program, processes, environment):
    def check(args):
        with tempfile.TemporaryDirectory() as folder:
            done = run(program, environment, folder, args)
            require(done.returncode == 0, "the run failed", done)
            for judge in judged(folder, processes):
                require(judge.counts["isend"] > 0, "nothing was sent")
    return check


def ll128(args):
    """Where the user allows LL128, NCCL takes it; with the tuner never. What NCCL 2.27 calls is not written down."""
    logged = nccl_host.Ready.version >= (2, 28)
    # NCCL 2.27 takes "none" for a name, finds no such file, and then takes ours all the same: a library that has no tuner.
    without = {"NCCL_TUNER_PLUGIN": "none" if logged else "libm.so.6"}
    program = "nccl-host-perf -g 2 -C all_reduce -b 512 -e 128K -f 4 -n 2"
    allowed = {"CLUSTAR_TRANSPORT": "tcp", "NCCL_PROTO": "LL,LL128,Simple"}
    with tempfile.TemporaryDirectory() as folder:
        done = run(program, allowed, folder if logged else None, args)
        require(done.returncode == 0 and "# checked: 0 wrong" in done.stdout, "the run with the tuner failed", done)
        if logged:
            check_choices(folder)
    with tempfile.TemporaryDirectory() as folder:
        done = run(program, {**allowed, **without}, folder if logged else None, args)
        require(done.returncode != 0 and "LL128" in done.stderr, "without the tuner NCCL did not take LL128", done)


def steering(args):
    """Of what may lose, ring with Simple alone is left of the user's four; setNetAttr agrees, and so it may lose."""
    rules = {"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_LOSS_RULES": "func=allreduce,p=0.01", "CLUSTAR_LOSS_WARMUP": "0"}
    with tempfile.TemporaryDirectory() as folder:
        done = run("nccl-host-perf -g 4 -C all_reduce -c 0 -b 512K -e 1M -f 2 -n 2",
                   {**rules, "NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "LL,Simple"}, folder, args)
        require(done.returncode == 0, "the run with the tuner failed", done)
        for path in pathlib.Path(folder).iterdir():
            asked = calls.questions(calls.read(path))
            tables = {tuple(frozenset(choice[1:] for choice in calls.open_choices(each, when)) for when in ("before", "after"))
                      for each in asked}
            user = frozenset((algorithm, protocol) for algorithm in ("RING", "TREE") for protocol in ("LL", "SIMPLE"))
            require(tables == {(user, frozenset([("RING", "SIMPLE")]))}, f"the tables before and after: {tables}")
        told = re.findall(r"(\d+) of (\d+) messages identified; (\d+) may lose; reliable: (.*)", done.stdout)
        require(len(told) == 4 and all(line[0] == line[1] and int(line[2]) > 0 for line in told),
                f"not all identified, or none may lose: {told}", done)
        require(not any("guard" in line[3] for line in told), f"setNetAttr: {told}")


def check_choices(folder):
    paths = list(pathlib.Path(folder).iterdir())
    require(paths, "no calls were written down")
    for path in paths:
        read = calls.read(path)
        calls.Judge(read)
        wrong, changed = calls.wrong_choice(read)
        require(not wrong and changed > 0, f"{wrong or 'the masks changed nothing'}")


# By NCCL's version: which of our tables it takes, of net, profiler and tuner.
TABLES = {(2, 27): (10, 4, 4), (2, 28): (11, 5, 5), (2, 29): (11, 6, 5), (2, 30): (12, 6, 6)}

# What a user sees of all versions.
BANNER = (r"NET/clustar: clustar [\d.]+(?: \(commit [^)]*\))?: transport tcp, devices: lo",
          r"NET/clustar: tcp gives no order of 128-byte lines: LL128 is masked by this library.s tuner",
          r"NET/clustar: config: transport = tcp \(environment\)", r"Initialized NET plugin clustar",
          r"Assigned NET plugin clustar to comm", r"Using network clustar")


def banner_of(version, named, path):
    """What a user sees, in this order. The net plugin's library is asked for the other two."""
    net, profiler, tuner = TABLES[min(version[:2], max(TABLES))]
    if version < (2, 28):
        # It asks for no profiler there, and keeps the plugin until the process ends.
        library = named if "/" in named else f"libnccl-net-{named}.so"
        return (rf"NET/Plugin: Plugin name set by env to {library}", rf"NET/Plugin: Loaded net plugin clustar \(v{net}\)",
                rf"Successfully loaded external plugin {named}", *BANNER,
                r"PROFILER/Plugin: Could not find: libnccl-profiler.so", r"TUNER/Plugin: Could not find: libnccl-tuner.so",
                r"TUNER/Plugin: Using tuner plugin clustar", r"ncclCommInitRank .* Init COMPLETE",
                r"TUNER/Plugin: Closing tuner: 'clustar'", r"NET/clustar: tcp: lo sent \d+ messages")
    return (rf"NCCL_NET_PLUGIN set by environment to {named}", rf"NET/Plugin: Loaded net plugin clustar \(v{net}\)",
            rf"Successfully loaded external network plugin {path}", *BANNER,
            r"PROFILER/Plugin: Could not find: libnccl-profiler.so", rf"PROFILER/Plugin: Loaded clustar \(v{profiler}\)",
            r"TUNER/Plugin: Could not find: libnccl-tuner.so", rf"TUNER/Plugin: Using clustar \(v{tuner}\)",
            r"ncclCommInitRank .* Init COMPLETE", r"TUNER/Plugin: Closing tuner: 'clustar'",
            r"PROFILER/Plugin: Closing profiler plugin clustar", r"NET/clustar: tcp: lo sent \d+ messages",
            rf"Unloading plugin {named}")


def banner(named):
    def check(args):
        name = named.format(plugin=args.plugin)
        path = f"{args.plugin}/libnccl-net-clustar.so"
        done = run("nccl-host-perf -g 2 -b 8 -n 1", {"CLUSTAR_TRANSPORT": "tcp", "NCCL_NET_PLUGIN": name})
        require(done.returncode == 0, "the run failed", done)
        at = 0
        for line in 2 * banner_of(nccl_host.Ready.version, re.escape(name), re.escape(path)):  # the ranks' logs, one after the other
            found = re.search(line, done.stdout[at:])
            require(found, f"not in the log, or not in this order: {line}\n{done.stdout[-3000:]}")
            at += found.end()
    return check


# The second communicator's network where NCCL still knows the plugin.
KEPT = (False, ["clustar"], "many: 2 ranks")


def next_communicator(environment, *forgotten):
    """Which network the communicators after the first get, when each is gone before the next. NCCL 2.28 and 2.29 forget a
    plugin's name with the last one (nccl#1978)."""
    def check(_):
        forgets = (2, 28) <= nccl_host.Ready.version < (2, 30)
        status, network, said = forgotten if forgets else KEPT
        done = run("nccl-host-scenarios many -g 2 -b 64K -n 3", {"CLUSTAR_TRANSPORT": "tcp", **environment})
        networks = sorted(set(re.findall(r"Using network (\S+)", done.stdout)))
        require((done.returncode != 0) == status and networks == network, f"networks {networks}, not {network}", done)
        require(said in done.stdout + done.stderr, f"'{said}' is not in the output", done)
    return check


CHECKS = {
    "order": order,
    "order-split": order_of("nccl-host-scenarios split -g 3 -b 64K", 3, {"CLUSTAR_TRANSPORT": "mlt"}),
    "ll128": ll128,
    "steering": steering,
    "banner-name": banner("clustar"),
    "banner-path": banner("{plugin}/libnccl-net-clustar.so"),
    "next-silent": next_communicator({}, False, ["Socket", "clustar"], "Could not find: libnccl-net.so"),
    "next-named": next_communicator({"NCCL_NET": "clustar"}, True, ["clustar"], "Failed to initialize any NET plugin"),
    "next-kept": next_communicator({"NCCL_NET_PLUGIN_REF_COUNT": "1"}, *KEPT),
}
# Of these the log's tables and the rules are those from NCCL 2.28 on.
BY_LATER_RULES = ("order", "order-split", "steering")


def wrong_with(check, args):
    try:
        check(args)
    except (Wrong, calls.Deviation) as wrong:
        return str(wrong)
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--fake", required=True)
    parser.add_argument("--name", default="")
    args = parser.parse_args()
    status = nccl_host.made_ready(args.plugin)
    if status:
        return status
    chosen = {name: check for name, check in CHECKS.items() if args.name in name}
    if nccl_host.Ready.version < (2, 28):
        chosen = {name: check for name, check in chosen.items() if name not in BY_LATER_RULES}
        print(f"not under NCCL {'.'.join(map(str, nccl_host.Ready.version))}: {', '.join(BY_LATER_RULES)}")
    return at_once.run({name: (wrong_with, check, args) for name, check in chosen.items()}, AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
