"""Scenarios of NCCL's life over the plugin, in small: communicators made and used in many ways, ranks that die or stand still.

usage: scenarios_test.py [--plugin DIR] [--name PART] [--cut CLUSTAR] [--repeat N]
PART: part of a case's name; --cut: only the cut of a network, on hosts that the command CLUSTAR makes; needs root; N: only
ranks that die, abort or stand still for 20 s, N trials of each (with --cut so many cuts), many minutes
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

import nccl_host

# Most of their time NCCL sleeps: its proxy looks up every half second when a communicator ends.
AT_ONCE = 3

TRANSPORTS = ("tcp", "mlt")
# What a transport sees alike runs over one of them: the proxies of NCCL poll, which is most of the time here.
SCENARIOS = (
    (("tcp",), ("split",)), (("mlt",), ("communicators",)), (TRANSPORTS, ("groups",)), (("mlt",), ("nonblocking",)),
    (("tcp",), ("scalable",)), (TRANSPORTS, ("kill",)), (TRANSPORTS, ("abort",)), (TRANSPORTS, ("stop", "-s", "1")),
    (TRANSPORTS, ("abort_stopped",)), (TRANSPORTS, ("many", "-g", "2", "-n", "16")))
DEATHS = (("kill",), ("abort",), ("abort_stopped",), ("stop", "-s", "20"))
# NCCL 2.27's progress thread forgets what a plugin's test said (src/proxy.cc progressOps): no rank hears of another's end.
NEED_ERRORS = ("kill", "abort", "abort_stopped")
# Trials of one process; a stopped rank is waited for, so that several sets of ranks stand still at once.
TRIALS = {"stop": 5, "cut": 10}
REPEATED_AT_ONCE = 8
# Hosts of a fabric are made one set after the other, and all ranks of those that are cut off poll.
CUT_AT_ONCE = 3
# (scenario, environment) that must fail, and what it says then: checks that see nothing would pass all of the above.
PLANTED = {
    "wrong-bits": (("groups",), {"NCCL_HOST_WITHOUT_REDUCTION": "1"}, " 0 wrong", False),
    # On a busy machine ranks that come up may hear nothing of each other for seconds.
    "error-of-a-stopped-peer": (("stop", "-s", "12"), {"CLUSTAR_STALL_TIMEOUT": "6"}, "ranks did not go on", True),
}


def run(words, environment):
    command = ["nccl-host-scenarios", *words]
    if "-g" not in words:
        command += ["-g", "3"]
    command += ["-b", "128K", "-T", "150"]
    # Never NCCL's own sockets instead: NCCL 2.28.9 forgets a plugin by name when the last communicator goes (nccl#1978).
    environment = {**os.environ, "NCCL_NET": "clustar", "NCCL_NET_PLUGIN_REF_COUNT": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", **environment}
    return nccl_host.run(command, environment)


def verdict(done):
    """Nothing, or what is wrong with a run that should be right."""
    if done.returncode:
        return f"ended with {done.returncode}"
    networks = {*re.findall(r"Using network (\S+)", done.stdout), *re.findall(r"via NET/([^/\s]+)/", done.stdout)}
    return "" if networks == {"clustar"} else f"the networks were {sorted(networks)}, not clustar alone"


def right(transport, words):
    done = run(words, {"CLUSTAR_TRANSPORT": transport})
    return done, verdict(done)


def planted(words, environment, said, must_say):
    done = run(words, {"CLUSTAR_TRANSPORT": "tcp", **environment})
    ended = must_say or "elements compared" in done.stdout
    if done.returncode == 1 and ended and (said in done.stdout) == must_say:
        return done, ""
    return done, f"what was planted was not seen (status {done.returncode})"


def cut(clustar, transport, first, times):
    """Hosts of their own, whose second one loses its network, and has it again for the next trial."""
    fabric = ["--name", f"nh{os.getpid()}{transport}{first}"]
    made = subprocess.run([clustar, "fabric", "up", *fabric, "--hosts", "3", "--rate", "1G"], capture_output=True, text=True,
                          check=False)
    if made.returncode:
        subprocess.run([clustar, "fabric", "down", *fabric], capture_output=True, check=False)
        return made, "clustar fabric up failed"
    try:
        name = " ".join(fabric)
        words = ("cut", "-L", f"{clustar} fabric exec {name} {{rank}} --", "-c",
                 f"{clustar} fabric set h1 {name} --dead on --direction both >/dev/null")
        environment = {"CLUSTAR_TRANSPORT": transport, "NCCL_SOCKET_IFNAME": "eth0", "CLUSTAR_SOCKET_IFNAME": "eth0"}
        for _ in range(times):
            done = run(words, environment)
            if verdict(done):
                break
            subprocess.run([clustar, "fabric", "set", "h1", *fabric, "--dead", "off", "--direction", "both"],
                           capture_output=True, check=True)
        return done, verdict(done)
    finally:
        subprocess.run([clustar, "fabric", "down", *fabric], capture_output=True, check=False)


def figures(done):
    """Lines that say how long errors and aborts took."""
    return re.findall(r"\w+: \d+ of \d+ trials of .*", done.stdout)


def repeated(args):
    """Many trials of the same, in processes of a few each: name: what to call."""
    result = {}
    for transport in TRANSPORTS:
        for words in (("cut",),) if args.cut else DEATHS:
            most = TRIALS.get(words[0], args.repeat)
            for first in range(0, args.repeat, most):
                times = min(most, args.repeat - first)
                many = (cut, args.cut, transport, first, times) if args.cut else (
                    right, transport, (*words, "-n", str(times)))
                result[f"{words[0]}-{transport}-{first}"] = many
    return result


def cases(args):
    """name: what to call."""
    if args.cut:
        return {f"cut-{transport}": (cut, args.cut, transport, 0, 1) for transport in TRANSPORTS}
    result = {f"{words[0]}-{transport}": (right, transport, words)
              for transports, words in SCENARIOS for transport in transports}
    result.update({f"planted-{name}": (planted, *what) for name, what in PLANTED.items()})
    return result


def possible(chosen):
    """Without what this NCCL cannot do."""
    if nccl_host.Ready.version >= (2, 28):
        return chosen
    print(f"not under NCCL {'.'.join(map(str, nccl_host.Ready.version))}: {', '.join(NEED_ERRORS)}")
    return {name: what for name, what in chosen.items() if name.split("-")[0] not in NEED_ERRORS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--cut", default="")
    parser.add_argument("--repeat", type=int, default=0)
    args = parser.parse_args()
    status = nccl_host.made_ready(args.plugin)
    if status:
        return status
    if args.cut and subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        print("SKIP: no network namespaces for hosts to cut off; run it as root, where the kernel has them")
        return nccl_host.SKIP
    failed = passed = 0
    with concurrent.futures.ThreadPoolExecutor(CUT_AT_ONCE if args.cut else REPEATED_AT_ONCE if args.repeat else AT_ONCE) as pool:
        chosen = possible(repeated(args) if args.repeat else cases(args))
        running = {name: pool.submit(*what) for name, what in chosen.items() if args.name in name}
        for name, future in running.items():
            done, wrong = future.result()
            if args.repeat:
                print(name, *figures(done), flush=True)
            passed += not wrong
            failed += bool(wrong)
            if wrong:
                said = "\n".join(re.findall(r"^\w+: trial .*|^  rank \d.*", done.stdout, re.MULTILINE))
                print(f"FAILED {name}: {wrong}\n{said}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
