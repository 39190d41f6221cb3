"""NCCL's own host code and `clustar doctor nccl` in the same environments: both come to the same, and docs/using.md quotes
what NCCL prints.

usage: nccl_agrees_test.py --clustar PROGRAM --plugin DIR --stray FILE
exit status: 0 they agree; 1 they do not; 77 NCCL's source or the CUDA headers are not here
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/nccl_host"))
import logged
RUN = ("-g", "2", "-b", "64K", "-e", "64K", "-n", "1")
SECONDS = 40  # for a run of less than one

# name: variables ({plugin}, {stray}, {newer}: folders), whether NCCL uses clustar, what it prints and the guide quotes.
ENVIRONMENTS = {
    "path": ("NCCL_NET_PLUGIN={plugin}/libnccl-net-clustar.so NCCL_NET=clustar", True, "Using network clustar"),
    "word": ("NCCL_NET_PLUGIN=clustar LD_LIBRARY_PATH={plugin}", True, "TUNER/Plugin: Using clustar (v5)"),
    "all-roles": ("NCCL_NET_PLUGIN=clustar NCCL_PROFILER_PLUGIN={plugin}/libnccl-net-clustar.so LD_LIBRARY_PATH={plugin}",
                  True, "PROFILER/Plugin: Loaded clustar (v5)"),
    "not-found": ("NCCL_NET_PLUGIN=clustar", False, "NET/Plugin: Could not find: clustar libnccl-net-clustar.so"),
    "not-found-required": ("NCCL_NET_PLUGIN=clustar NCCL_NET=clustar", False,
                           "NCCL WARN Failed to initialize any NET plugin"),
    "unset": ("LD_LIBRARY_PATH={plugin}", False, "NET/Plugin: Could not find: libnccl-net.so"),
    "none": ("NCCL_NET_PLUGIN=none LD_LIBRARY_PATH={plugin}", False, "Using network Socket"),
    "case": ("NCCL_NET_PLUGIN=Clustar LD_LIBRARY_PATH={plugin}", False, "Could not find: Clustar libnccl-net-Clustar.so"),
    "socket": ("NCCL_NET_PLUGIN=clustar NCCL_NET=Socket LD_LIBRARY_PATH={plugin}", False, "Using network Socket"),
    "name-without-case": ("NCCL_NET_PLUGIN=clustar NCCL_NET=CLUSTAR LD_LIBRARY_PATH={plugin}", True, "Using network clustar"),
    "stray": ("LD_LIBRARY_PATH={stray}:{plugin}", False, "Using network Sample"),
    "list": ("NCCL_NET_PLUGIN=libnccl-net.so,clustar LD_LIBRARY_PATH={stray}:{plugin}", False,
             "Disabling external plugins: clustar"),
    "list-required": ("NCCL_NET_PLUGIN=libnccl-net.so,clustar NCCL_NET=clustar LD_LIBRARY_PATH={stray}:{plugin}", True,
                      "Disabling external plugins: libnccl-net.so"),
    "glibc": ("NCCL_NET_PLUGIN=clustar LD_LIBRARY_PATH={newer}", False,
              "NET/Plugin: libnccl-net-clustar.so: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.99' not found"),
    "conf": ("NCCL_CONF_FILE={conf} LD_LIBRARY_PATH={plugin}", True, "Using network clustar"),
    "ll128": ("NCCL_NET_PLUGIN=clustar NCCL_PROTO=LL128 LD_LIBRARY_PATH={plugin}", True,
              "no algorithm/protocol available for function AllReduce with datatype ncclFloat32. "
              "NCCL_ALGO was set to Ring. NCCL_PROTO was set to LL128."),
}
# The plugin is taken, and refuses, or is refused: the doctor names the sentence.
REFUSALS = {
    "setting": ("CLUSTAR_TRANSPRT=mlt", "unknown setting CLUSTAR_TRANSPRT; did you mean CLUSTAR_TRANSPORT?"),
    "value": ("CLUSTAR_TRANSPORT=rdma", "CLUSTAR_TRANSPORT = 'rdma' is not allowed: auto | tcp | mlt | verbs | ofi"),
    "interface": ("CLUSTAR_SOCKET_IFNAME=eth9", "no usable network interface matches 'eth9'"),
    "key": ("CLUSTAR_PSK_FILE=/nowhere", "mlt: psk_file /nowhere: No such file or directory (errno 2); it must exist on every"),
}
# Rank 0's variables, rank 1's, what one of them says.
MISMATCHES = {
    "plugin": ("LD_LIBRARY_PATH={plugin}", "A=b", "connect: tcp: this is not a handle of clustar's tcp transport of this version; "
               "do all ranks load the same plugin with the same CLUSTAR_TRANSPORT?"),
    "transport": ("LD_LIBRARY_PATH={plugin} CLUSTAR_TRANSPORT=tcp", "LD_LIBRARY_PATH={plugin} CLUSTAR_TRANSPORT=mlt",
                  "this is not a handle of clustar's tcp transport"),
    "setting": ("LD_LIBRARY_PATH={plugin} CLUSTAR_TRANSPORT=mlt CLUSTAR_LOSS_TOLERANCE=0.02",
                "LD_LIBRARY_PATH={plugin} CLUSTAR_TRANSPORT=mlt",
                "CLUSTAR_LOSS_TOLERANCE, CLUSTAR_LOSS_CRITICAL_TOLERANCE are another on rank 1 than on rank 0; set them alike"),
    "window": ("LD_LIBRARY_PATH={plugin} CLUSTAR_TCP_WINDOW_BYTES=2M", "LD_LIBRARY_PATH={plugin}",
               "CLUSTAR_TCP_WINDOW_BYTES is 1048576 here and 2097152 at "),
    "key": ("LD_LIBRARY_PATH={plugin} CLUSTAR_PSK_FILE={key}", "LD_LIBRARY_PATH={plugin} CLUSTAR_PSK_FILE={other_key}",
            "psk_file: the peer's secret is another; copy the same file to all hosts"),
    "one-key": ("LD_LIBRARY_PATH={plugin} CLUSTAR_TRANSPORT=mlt CLUSTAR_PSK_FILE={key}",
                "LD_LIBRARY_PATH={plugin} CLUSTAR_TRANSPORT=mlt",
                "psk_file is set here and not set at the peer; set CLUSTAR_PSK_FILE to the same secret on all ranks, or on none"),
}


class Bench:
    """Folders with what lies in NCCL's way, and both programs."""

    def __init__(self, arguments, library, folder):
        self.clustar = arguments.clustar
        self.library = library
        self.folder = folder
        self.places = {"plugin": str(pathlib.Path(arguments.plugin).resolve()), "stray": folder / "stray",
                       "newer": folder / "newer", "conf": folder / "nccl.conf", "key": folder / "key",
                       "other_key": folder / "other_key"}
        for name in ("stray", "newer"):
            (folder / name).mkdir()
        (folder / "stray/libnccl-net.so").write_bytes(pathlib.Path(arguments.stray).read_bytes())
        ours = pathlib.Path(arguments.plugin, "libnccl-net-clustar.so").read_bytes()
        # What a library looks like that was built on a newer system.
        newest = b"GLIBC_2.%d\0" % max(int(found) for found in re.findall(rb"GLIBC_2\.(\d\d)\0", ours))
        (folder / "newer/libnccl-net-clustar.so").write_bytes(ours.replace(newest, b"GLIBC_2.99\0"))
        (folder / "nccl.conf").write_text("NCCL_NET_PLUGIN=clustar\n")
        for name in ("key", "other_key"):
            (folder / name).write_bytes(os.urandom(32))
            (folder / name).chmod(0o600)

    def variables(self, text):
        given = dict(word.split("=", 1) for word in text.format(**self.places).split())
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "NCCL_CONF_FILE": "/nowhere", "CLUSTAR_SOCKET_IFNAME": "lo",
                **given}

    def nccl(self, text, ranks=None):
        variables = self.variables(text)
        path = [str(self.library.parent), variables.get("LD_LIBRARY_PATH", "")]
        variables.update({"NCCL_ALGO": "Ring", "NCCL_CUMEM_ENABLE": "0", "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "INFO",
                          "LD_LIBRARY_PATH": ":".join(part for part in path if part)})
        words = [self.library.parent / "nccl-host-perf", *RUN]
        if ranks:
            words += ["--launch", f"{self.launcher(ranks)} {{rank}}"]
        done = logged.run(words, variables, timeout=SECONDS)
        return done.stdout + done.stderr

    def launcher(self, ranks):
        script = self.folder / "rank"
        lines = ["#!/bin/sh", "rank=$1; shift"]
        for number, text in enumerate(ranks):
            # Of a rank's own; the folder of NCCL's library stays.
            words = text.format(**self.places).replace("LD_LIBRARY_PATH=", f"LD_LIBRARY_PATH={self.library.parent}:")
            lines.append(f"[ $rank = {number} ] && export {words}")
        script.write_text("\n".join([*lines, 'exec "$@"', ""]))
        script.chmod(0o700)
        return script

    def doctor(self, text):
        done = subprocess.run([self.clustar, "doctor", "nccl", "--json", "-"], env=self.variables(text), capture_output=True,
                              text=True, check=False, timeout=SECONDS)
        return done.returncode, json.loads(done.stdout)["results"]


def environments(bench):
    for name, (text, uses, said) in ENVIRONMENTS.items():
        log = bench.nccl(text)
        _, report = bench.doctor(text)
        used = "Using network clustar" in log
        yield name, said, log, "" if used == uses == report["uses_clustar"] else (
            f"NCCL {'used' if used else 'did not use'} clustar, the doctor says {report['uses_clustar']}, expected is {uses}")


def refusals(bench):
    base = "NCCL_NET_PLUGIN=clustar LD_LIBRARY_PATH={plugin} "
    for name, (text, said) in REFUSALS.items():
        log = bench.nccl(base + text)
        status, report = bench.doctor(base + text)
        failed = [check["evidence"] for check in report["checks"] if check["outcome"] == "failed"]
        named = status == 1 and any(said in evidence for evidence in failed)
        yield f"refusal {name}", said, log, "" if named else f"the doctor ends with {status} and names {failed}"


def mismatches(bench):
    for name, (first, second, said) in MISMATCHES.items():
        yield f"mismatch {name}", said, bench.nccl("NCCL_NET_PLUGIN=clustar", (first, second)), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--clustar", "--plugin", "--stray"):
        parser.add_argument(option, required=True)
    arguments = parser.parse_args()
    built = subprocess.run([ROOT / "scripts/nccl-host"], capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr.strip())
        return built.returncode
    # In a table a bar has a backslash, and a quotation cannot hold a backtick.
    guide = " ".join((ROOT / "docs/using.md").read_text().replace("\\|", "|").split())
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, pathlib.Path(built.stdout.strip()), pathlib.Path(folder))
        for cases in (environments, refusals, mismatches):
            for name, said, log, problem in cases(bench):
                if not problem and said not in log:
                    problem = f"NCCL does not print '{said}'"
                if not problem and said.replace("`", "'") not in guide:
                    problem = f"docs/using.md does not quote '{said}'"
                wrong += bool(problem)
                print(f"{'FAILED' if problem else 'ok    '} {name}{': ' + problem if problem else ''}", flush=True)
                if problem:
                    print(log[-3000:])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
