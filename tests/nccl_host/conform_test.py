"""`clustar conform --nccl` as a user calls it: over our plugin, NCCL's own sockets, and plugins that are broken on purpose.

usage: conform_test.py --clustar PROGRAM --plugin DIR [--name PART]
DIR: where our plugin and the sample of tests/conform are; PART: part of a case's name
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import at_once
import nccl_host

# Most of their time NCCL sleeps.
AT_ONCE = 4
# Two ranks: threads of NCCL poll, and a machine that builds beside this has no core for more.
MANY = "all_gather.2x4M-double-Simple"
FEW = "all_reduce.2x8B-int8-sum-LL"
SOUND = f"{MANY},reduce_scatter.2x8B,sendrecv.2x512K,scenario.nonblocking,scenario.kill"
SOUND_CASES = 5
BRIEF = f"{FEW},scenario.kill"
OURS, SAMPLE = "libnccl-net-clustar.so", "libnccl-net-sample.so"

# name: (plugin, settings, cases, options, how many pass)
RIGHT = {
    "tcp": (OURS, {"CLUSTAR_TRANSPORT": "tcp"}, SOUND, [], SOUND_CASES),
    "mlt": (OURS, {"CLUSTAR_TRANSPORT": "mlt"}, SOUND, [], SOUND_CASES),
    "gpu": (OURS, {"CLUSTAR_TRANSPORT": "tcp"}, MANY, ["--emulated-gpu"], 1),
    "socket": ("socket", {}, BRIEF, [], 2),
    "sample": (SAMPLE, {}, BRIEF, [], 2),
}
# name of the sample's defect: (case, what is said of it; {limit}: there to run into the case's limit)
BROKEN = {
    "corrupt_large": (MANY, "wrong bits and no error"),
    "close_crash": ("scenario.kill", "crashed with SIGABRT"),
    "busy_forever": (FEW, "stuck: not done in {limit} s, in transfers"),
    "blocking_connect": (FEW, "stuck: not done in {limit} s, while ranks connected"),
    "no_devices": (FEW, "NCCL fell back to Socket on 2 of 2 communicators"),
    "init_once": ("scenario.communicators", "NCCL fell back to Socket"),
    "max_bytes_zero": (FEW, "maxP2pBytes 0"),
    "null_listen": (FEW, "crashed with SIG"),
    "death_hang": ("scenario.kill", "no error in {limit} s on rank"),
    # Eight seconds late, where two are allowed, and of a busy machine's waits four more at most. Who is next to the dead
    # rank tells its own neighbour by aborting, which hears of it as late again: up to 25 s.
    "death_late": ("scenario.kill", "an error came too late"),
    "freeze_error": ("scenario.stop", "returned ncclRemoteError (6) (NCCL's transport/net.cc:"),
}
# Of a case, in seconds. An idle machine needs one for what comes before the defect.
LIMITS = (4, 20, 60)
DEATH_BOUND = 2
BEFORE_THE_DEFECT = ("stuck: not done in", "too slow before anything happened")
KEYS = {"name", "group", "rule", "source", "version", "outcome", "reason", "seconds"}


def conform(args, plugin, settings, options):
    """(exit status, results, output)"""
    if plugin.endswith(".so"):
        plugin = f"{args.plugin}/{plugin}"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "results.json"
        done = subprocess.run([args.clustar, "conform", "--nccl", "--plugin", plugin, "--json", out, *options],
                              env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=280)
        results = json.loads(out.read_text())["results"] if out.exists() else None
        return done.returncode, results, done.stdout + done.stderr


def right(args, plugin, settings, only, options, count):
    """Nothing, or what is wrong with a run in which all passes."""
    options = ["--only", only, "--timeout", "60", *options]
    status, results, output = conform(args, plugin, settings, options)
    if status or not results:
        return f"ended with {status}\n{output}"
    if (results["passed"], results["failed"], results["skipped"]) != (count, 0, 0):
        return f"{count} were to pass\n{output}"
    if any(set(check) != KEYS for check in results["checks"]) or results["nccl"]["interrupted"]:
        return f"other keys: {results}"
    tables = {check["version"] for check in results["checks"]}
    if tables != ({0} if plugin == "socket" else {11}) or (plugin != "socket") != bool(results["exported_versions"]):
        return f"tables {tables}, exported {results['exported_versions']}"
    return ""


def broken(args, defect, only, said):
    """Nothing, or what is wrong with a run that must find a defect. A machine that is so busy that a run does not even come to
    the defect within its limit gives it more; another verdict is wrong at once."""
    for timeout in LIMITS if "{limit}" in said else LIMITS[-1:]:
        options = ["--only", only, "--timeout", str(timeout), "--death-bound", str(DEATH_BOUND)]
        settings = {"SAMPLE_DEFECT": defect, "SAMPLE_BLOCKS_SECONDS": "600"}
        status, results, output = conform(args, SAMPLE, settings, options)
        if status != 1 or not results or [check["outcome"] for check in results["checks"]] != ["fail"]:
            return f"ended with {status}, a failure was to be found\n{output}"
        check = results["checks"][0]
        # A case is ended five seconds after its own limit at the latest.
        if check["seconds"] > timeout + DEATH_BOUND + 5 + 5:
            return f"took {check['seconds']} s"
        wanted = said.format(limit=timeout + (DEATH_BOUND if only == "scenario.kill" else 0))
        if wanted in check["reason"]:
            return ""
        if not any(early in check["reason"] for early in BEFORE_THE_DEFECT):
            break
    return f"the reason was to name '{wanted}'\n{output}"


def interrupted(args):
    """Nothing, or what is wrong after Ctrl-C in the middle of a case that is stuck."""
    # A name for the processes that the run starts.
    marker = f"CONFORM_TEST_MARK={os.getpid()}"
    name, value = marker.split("=")
    command = [args.clustar, "conform", "--nccl", "--plugin", f"{args.plugin}/{SAMPLE}", "--only", f"{FEW},{MANY}"]
    environment = {**os.environ, name: value, "SAMPLE_DEFECT": "busy_forever"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        latest = time.monotonic() + 30
        while time.monotonic() < latest and not any("nccl-host-perf" in line for line in marked(marker)):
            time.sleep(0.05)
        time.sleep(0.5)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            output = process.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return "did not end within 20 s after Ctrl-C"
        took = time.monotonic() - begin
    # Its ranks are killed with it, and the kernel may take a moment to remove them.
    latest = time.monotonic() + 5
    while (left := marked(marker)) and time.monotonic() < latest:
        time.sleep(0.05)
    if left or took > 5 or process.returncode != 1 or "interrupted by signal 2" not in output or "Traceback" in output:
        return f"ended with {process.returncode} after {took:.1f} s, left {left}\n{output}"
    return ""


def marked(marker):
    """Command lines of the processes that have it in their environment, but for clustar itself."""
    result = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes().split(b"\0"):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                result += [line] if line and "clustar conform" not in line else []
        except OSError:
            continue
    return result


def cases(args):
    """name: what to call."""
    result = {f"right-{name}": (right, args, *what) for name, what in RIGHT.items()}
    result.update({f"broken-{name}": (broken, args, name, *what) for name, what in BROKEN.items()})
    result["interrupted"] = (interrupted, args)
    return {name: what for name, what in result.items() if args.name in name}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clustar", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--name", default="")
    args = parser.parse_args()
    status = nccl_host.made_ready(args.plugin)
    if status:
        return status
    return at_once.run(cases(args), AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
