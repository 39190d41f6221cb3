"""NCCL's own transport over InfiniBand verbs against clustar's, under NCCL's host code, in the virtual machine."""

import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

import logged
import nccl_host
import softroce_count
import source

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77
LABEL = ("NCCL's host code on an emulated device, real RoCE v2 packets by SoftRoCE in a virtual machine. "
         "The processor is emulated: only the ratio of times in one run means anything, and little of a real NIC")
RUN_LIMIT_S = 120  # of one run of about 10
BOOT_S = 60
RANK_LINE = re.compile(r"^ *\d+ +\d+ +\d+ +\S+ +\S+ +([0-9.]+) +(\d+)$", re.MULTILINE)
SETTING = re.compile(r"[A-Za-z_]\w*=.*")

DESCRIPTION = """\
Runs a collective over two transports in turns (A B, B A, ...), each in processes of its own, in the virtual machine of
scripts/softroce-vm: NCCL's own host code on an emulated device, rank 0 on rxe_a, rank 1 on rxe_b, and so on, so that
every byte goes over the cable between them as RoCE v2. A is NCCL's own transport (NET/IB), B is clustar over verbs.
It prints packets and bytes on the cable, retransmissions, and the ratio of times.
"""
EPILOG = """\
Times are those of an emulated processor: only their ratio in one run means anything, and little of a real NIC.

A run takes about 10 s, so 5 rounds take two minutes. It needs NCCL's source (scripts/nccl-host --help) and QEMU
(scripts/softroce-vm --help), and a release build, or --plugin.

example: scripts/softroce-ab --size 1M --candidate CLUSTAR_IB_QPS=4 --json softroce.json

exit status: 0 measured; 1 a run failed, bits were wrong, or bytes did not go its arm's way; 2 wrong usage;
             77 it cannot run here, and the last line says what to do
"""


class Failed(Exception):
    """What went wrong, for people."""


def settings_of(text):
    """NAME=VALUE,NAME=VALUE as a dict; a comma in a value is \\, ."""
    result = {}
    for part in re.split(r"(?<!\\),", text) if text else []:
        part = part.replace("\\,", ",")
        if not SETTING.fullmatch(part):
            raise argparse.ArgumentTypeError(f"'{part}' is no setting; allowed: NAME=VALUE, separated by commas")
        name, value = part.split("=", 1)
        result[name] = value
    return result


def number(least, most):
    def parse(text):
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is no number from {least} to {most}")
        return int(text)

    return parse


def arms(arguments):
    """Name, variables, NCCL's name of the network."""
    both = {"NCCL_SOCKET_IFNAME": "va", "CLUSTAR_SOCKET_IFNAME": "va", "NCCL_CUMEM_ENABLE": "0", "NCCL_ALGO": "Ring",
            "NCCL_PROTO": arguments.protocol, "NCCL_DEBUG": "INFO"}
    # RoCE v2's entry in the GID table. NCCL 2.28's device-side network (GIN) needs a GPU's driver and dies without one.
    nccl = {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none", "NCCL_IB_GID_INDEX": "1", "NCCL_GIN_TYPE": "0"}
    clustar = {"NCCL_NET": "clustar", "NCCL_NET_PLUGIN": "clustar", "CLUSTAR_TRANSPORT": "verbs", "CLUSTAR_REQUIRE": "verbs"}
    return [("A", "NCCL's NET/IB", {**both, **nccl, **arguments.baseline}, "IB"),
            ("B", "clustar over verbs", {**both, **clustar, **arguments.candidate}, "clustar")]


def perf_words(library, arguments):
    return [str(library.parent / "nccl-host-perf"), "-g", str(arguments.ranks), "-C", arguments.collective, "-d", arguments.datatype,
            "-o", arguments.op, "-b", arguments.size, "-e", arguments.size, "-n", str(arguments.iters), "-T", str(RUN_LIMIT_S - 20),
            # Every rank's device; both transports get it.
            "-L", f"{shlex.quote(sys.executable)} -B {shlex.quote(__file__)} --rank {{rank}} --"]


def exec_rank(rank, words):
    """Becomes a rank that has one of the two devices. In a ring of an even number of ranks no neighbours share one, and
    SoftRoCE sends what stays on a device over no cable."""
    device = ("rxe_a", "rxe_b")[int(rank) % 2]
    os.environ.update({"NCCL_IB_HCA": f"={device}", "CLUSTAR_IB_HCA": device})
    os.execvp(words[0], words)


def figures(text, ranks, network):
    """Microseconds of a call out of nccl-host-perf's output behind NCCL's logs; Failed unless all is as it should be."""
    used = len(re.findall(rf"Using network {network}$", text, re.MULTILINE))
    if used != ranks:
        raise Failed(f"{used} of {ranks} ranks used the network {network}")
    found = RANK_LINE.findall(text)
    if len(found) != 1 or "# checked: 0 wrong" not in text or found[0][1] != "0":
        raise Failed("the results were not checked, or are wrong")
    return float(found[0][0])


def run_once(library, plugin, arguments, arm):
    letter, name, variables, network = arm
    environment = {**os.environ, **variables, "LD_LIBRARY_PATH": f"{library.parent}:{plugin}"}
    before = softroce_count.counters()
    try:
        done = logged.run(perf_words(library, arguments), environment, timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{letter}, {name}: not done within {RUN_LIMIT_S} s\n{late.output[-2000:]}") from late
    after = softroce_count.counters()
    try:
        if done.returncode:
            raise Failed(f"ended with {done.returncode}")
        time_us = figures(done.stdout, arguments.ranks, network)
    except Failed as error:
        raise Failed(f"{letter}, {name}: {error}\n{done.stdout[-2000:]}{done.stderr[-1000:]}") from error
    return {"arm": letter, "time_us": time_us, **{key: after[key] - before[key] for key in after}}


def order_of_round(index, both):
    return both if index % 2 == 0 else both[::-1]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(runs, arguments, version):
    """What is printed and written, out of the runs alone."""
    keys = [key for key in runs[0] if key not in ("arm", "round")]
    by_arm = {letter: [run for run in runs if run["arm"] == letter] for letter in ("A", "B")}
    ratios = [b["time_us"] / a["time_us"] for a, b in zip(by_arm["A"], by_arm["B"])]
    return {"label": LABEL, "nccl": ".".join(map(str, version)), "emulated_processor": True, "ranks": arguments.ranks,
            "collective": arguments.collective, "datatype": arguments.datatype, "op": arguments.op, "size": arguments.size,
            "iters": arguments.iters, "protocol": arguments.protocol, "rounds": len(ratios),
            "arms": [{"arm": letter, "name": name, "settings": variables,
                      **{key: spread([run[key] for run in by_arm[letter]]) for key in keys}}
                     for letter, name, variables, _ in arms(arguments)],
            "time_ratio": spread(ratios),
            "wire_bytes_ratio": statistics.median(b["roce_bytes"] / a["roce_bytes"] for a, b in zip(by_arm["A"], by_arm["B"])),
            "runs": runs}


def table(result):
    one, two = result["arms"]
    lines = [f"{result['collective']} of {result['size']} {result['datatype']}, {result['ranks']} ranks, {result['iters']} calls a run,"
             f" {result['protocol']}; NCCL {result['nccl']}; {result['rounds']} rounds", f"  {result['label']}.", "",
             f"  {'median of the rounds':<34}{'A: ' + one['name']:>22}{'B: ' + two['name']:>24}{'B/A':>9}"]
    for what, key, unit in (("a call, ms (emulated processor)", "time_us", 1e3), ("RoCE v2 packets on the cable", "roce_packets", 1),
                            ("RoCE v2 bytes on the cable", "roce_bytes", 1), ("retry events (RNR, sequence, timeout)", "retry_events", 1)):
        a, b = one[key]["median"] / unit, two[key]["median"] / unit
        ratio = result["time_ratio"]["median"] if key == "time_us" else b / a if a else None
        digits = 1 if unit > 1 else 0
        lines.append(f"  {what:<34}{a:>22,.{digits}f}{b:>24,.{digits}f}{'' if ratio is None else f'{ratio:>9.3f}'}")
    ratio = result["time_ratio"]
    lines.append(f"\n  time B/A by round: {ratio['min']:.3f} to {ratio['max']:.3f}; below 1, B is faster")
    return "\n".join(lines)


def inside(arguments):
    """In the virtual machine: all runs; a line of JSON each."""
    library, both, runs = pathlib.Path(arguments.inside), arms(arguments), []
    softroce_count.begin()
    try:
        for index in range(arguments.rounds):
            for arm in order_of_round(index, both):
                run = {"round": index + 1, **run_once(library, arguments.plugin, arguments, arm)}
                runs.append(run)
                print(f"[{len(runs)}/{2 * arguments.rounds}] round {index + 1}  {arm[0]} {arm[1]:<20}{run['time_us'] / 1e3:>9.1f} ms"
                      f"{run['roce_packets']:>8} packets{run['roce_bytes']:>11} bytes", flush=True)
    except Failed as error:
        print(f"FAILED {error}", flush=True)
        return 1
    with open(f"{os.environ['OUT']}/runs.json", "w", encoding="utf-8") as file:
        json.dump(runs, file)
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(prog="scripts/softroce-ab", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=number(1, 100), default=5, metavar="N", help="runs of each arm (5)")
    parser.add_argument("--ranks", type=int, choices=(2, 4), default=2, help="half of them on each device (2)")
    parser.add_argument("--collective", default="all_reduce", metavar="C", help="as nccl-host-perf has them (all_reduce)",
                        choices=("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "sendrecv"))
    parser.add_argument("--size", default="1M", metavar="BYTES", help="with K or M; per rank (1M)")
    parser.add_argument("--iters", type=number(1, 1000), default=4, metavar="N", help="calls in a run (4)")
    parser.add_argument("--datatype", default="float", metavar="T", help="(float)")
    parser.add_argument("--op", default="sum", metavar="O", help="(sum)")
    parser.add_argument("--protocol", default="Simple", choices=("Simple", "LL"), help="NCCL's (Simple)")
    parser.add_argument("--baseline", type=settings_of, default={}, metavar="NAME=VALUE,...", help="more settings of A: NCCL_IB_...")
    parser.add_argument("--candidate", type=settings_of, default={}, metavar="NAME=VALUE,...", help="more settings of B: CLUSTAR_...")
    parser.add_argument("--plugin", default=str(ROOT / "build/release/lib"), metavar="DIR",
                        help="where libnccl-net-clustar.so and its modules are (build/release/lib)")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if not re.fullmatch(r"[1-9]\d{0,8}[KM]?", arguments.size):
        parser.error(f"--size '{arguments.size}'; allowed: a number of bytes, or with K or M, as 64K")
    arguments.plugin = str(pathlib.Path(arguments.plugin).resolve())
    if not pathlib.Path(arguments.plugin, "libnccl-net-clustar.so").exists():
        parser.error(f"there is no libnccl-net-clustar.so in {arguments.plugin}: build it, or name its folder by --plugin")
    if arguments.json and not pathlib.Path(arguments.json).resolve().parent.is_dir():
        parser.error(f"--json: there is no folder for {arguments.json}")
    return arguments


def measure(argv, arguments, library):
    """The exit status of the machine, and what was measured in it."""
    with tempfile.TemporaryDirectory() as out:
        limit = BOOT_S + 2 * arguments.rounds * RUN_LIMIT_S
        command = [ROOT / "scripts/softroce-vm", "--mem", "3072", "--timeout", str(limit), "--out", out, "--",
                   sys.executable, "-B", __file__, *argv, "--plugin", arguments.plugin, "--inside", library]
        status = subprocess.run(command, check=False).returncode
        runs = pathlib.Path(out, "runs.json")
        return status, json.loads(runs.read_text(encoding="utf-8")) if status == 0 and runs.exists() else None


def main(argv):
    if argv[:1] == ["--rank"]:
        exec_rank(argv[1], argv[3:])
    arguments = parse(argv)
    if arguments.inside:
        return inside(arguments)
    built = subprocess.run([sys.executable, "-B", ROOT / "tests/nccl_host/nccl_host.py"], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        return built.returncode
    status, runs = measure(argv, arguments, built.stdout.strip())
    if runs is None:
        return status or 1
    result = summary(runs, arguments, source.version(nccl_host.tree_of(None)))
    print(table(result))
    if arguments.json:
        document = {"command": "softroce-ab", "results": [result], "command_line": shlex.join(["scripts/softroce-ab", *argv])}
        pathlib.Path(arguments.json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
