"""NCCL's host code over a plugin and a driver that ThreadSanitizer watches; NCCL itself is not instrumented.

usage: tsan_run.py --plugin DIR [--seconds N] [-- SCENARIO...]
DIR: lib/ of the tsan build (cmake --build --preset tsan --target nccl-net-clustar); N: a program ends after so many (60);
SCENARIO: of nccl-host-scenarios, with arguments; without it a few, each over tcp and mlt

NCCL's own hand-overs between its threads by atomics are not seen, so that a report may be of those: read its two stacks.
First of all a plugin with a race in it runs, which must be found.
exit status: 0 no report; 1 reports (printed), or what was planted was not found; 77 no clang++ or no source of NCCL
"""

import argparse
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import alone
import library
import nccl_host
import source

HERE = pathlib.Path(__file__).resolve().parent
COMPILER = shutil.which("clang++")
# clang 14 has no _Float16, which nccl-host-perf needs.
SCENARIOS = ("communicators -g 2 -b 64K", "groups -g 2 -b 64K", "kill -g 3 -b 64K", "abort -g 3 -b 64K")
# NCCL's interceptors are watched for what they order, not for what they touch.
OPTIONS = "exitcode=66 ignore_noninstrumented_modules=1 history_size=4 report_thread_leaks=0"


def instrumented(tree, base, built, name, files, words):
    """A program or plugin, compiled once by clang with its ThreadSanitizer, whose runtime must be in the process from the start."""
    made = built.parent / "tsan" / name
    partial = made.with_suffix(".partial")
    with alone.in_folder(made.parent):
        if not made.exists():
            library.call([COMPILER, "-fsanitize=thread", "-g1", *library.own_flags(tree, base), *files, *words, "-o", partial])
            partial.rename(made)
    return made


def watched(driver, built, words, seconds, variables):
    """(what subprocess.run says, reports)"""
    with tempfile.TemporaryDirectory() as name:
        environment = {**nccl_host.environment(built), "NCCL_NET": "clustar", "NCCL_NET_PLUGIN_REF_COUNT": "1",
                       "TSAN_OPTIONS": f"{OPTIONS} log_path={name}/report", **variables}
        command = ["setarch", platform.machine(), "-R", driver, *words, "-T", str(seconds)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, errors="replace")
        return done, [text for path in sorted(pathlib.Path(name).iterdir())
                      for text in path.read_text(errors="replace").split("==================") if "WARNING" in text]


def planted_is_found(driver, built, race, args):
    variables = {"CLUSTAR_TRANSPORT": "tcp", "NCCL_NET_PLUGIN": race, "RACE_PLUGIN": f"{args.plugin}/libnccl-net-clustar.so"}
    done, found = watched(driver, built, SCENARIOS[0].split(" "), args.seconds, {name: str(value) for name, value in variables.items()})
    named = sum("data race" in text and "planted_race.cc" in text for text in found)
    print(f"a planted race: status {done.returncode}, found in {named} reports, {len(found) - named} others", flush=True)
    if not named:
        print(f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return named > 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("scenario", nargs="*")
    args = parser.parse_args()
    if COMPILER is None:
        print("SKIP: no clang++")
        return nccl_host.SKIP
    status = nccl_host.made_ready(args.plugin)
    if status:
        return status
    folder = nccl_host.ROOT / "build/nccl-host"
    tree = source.find(None, os.environ.get("CLUSTAR_NCCL_SOURCE"), nccl_host.ROOT.parent / "shared/data/nccl", folder)
    built = library.build(tree, folder, os.cpu_count())
    base = folder / f"objects-{library.key_of_nccl(tree)}"
    driver = instrumented(tree, base, built, "nccl-host-scenarios", library.own_files("ranks", "scenarios"),
                          [built, "-lpthread", f"-Wl,-rpath,{built.parent}"])
    race = instrumented(tree, base, built, f"planted_race-{library.digest([HERE / 'planted_race.cc'], [])}.so", [HERE / "planted_race.cc"], ["-shared"])
    reports = 0 if planted_is_found(driver, built, race, args) else 1
    for words in [args.scenario] if args.scenario else [each.split(" ") for each in SCENARIOS]:
        for transport in ("tcp", "mlt"):
            done, found = watched(driver, built, words, args.seconds, {"CLUSTAR_TRANSPORT": transport})
            reports += len(found)
            print(f"{transport}: {' '.join(words)}: status {done.returncode}, {len(found)} reports", flush=True)
            for summary in sorted({line for text in found for line in re.findall(r"SUMMARY: .*", text)}):
                print(f"  {sum(summary in text for text in found)} x {summary}", flush=True)
            print(*found[:6], sep="\n", flush=True)
            if not found and done.returncode:
                print(f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
                reports += 1
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main())
