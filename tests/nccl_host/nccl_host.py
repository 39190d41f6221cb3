"""Builds NCCL's host code over the emulated CUDA runtime of this folder, and runs a program over it."""

import argparse
import os
import pathlib
import subprocess
import sys

import library
import logged
import source

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77

DESCRIPTION = """\
Runs PROGRAM over NCCL's own host code (bootstrap, topology, proxy threads, loading of plugins) without a GPU: NCCL's
source is compiled against a CUDA runtime whose device memory is host memory and whose kernels are threads. It shows
that bits are right and calls in order; it says nothing of a GPU's memory order, of timing, or of the shipped
libnccl.so.2.

The library is built once, in about two minutes on two cores, and kept under build/nccl-host/, with a name that
changes with NCCL's source, the emulation, the compiler and its flags. ccache is used if it is installed.
"""

EPILOG = """\
PROGRAM gets LD_LIBRARY_PATH with the library and build/release/lib, and, where they are not set:
NCCL_NET_PLUGIN=clustar NCCL_ALGO=Ring NCCL_PROTO=^LL128 NCCL_CUMEM_ENABLE=0 NCCL_SOCKET_IFNAME=lo
CLUSTAR_SOCKET_IFNAME=lo. One rank is one process with an NCCL_HOSTID of its own; ranks that share one talk through
shared memory, past the plugin.

examples:
  scripts/nccl-host                      build the library, print its path
  scripts/nccl-host -- nccl-host-perf -g 4 -C all_reduce -b 8 -e 4M -f 8 -d half -o avg

exit status: PROGRAM's; 77 NCCL's source or the CUDA headers are not here (the last line says what to do);
             1 the library could not be built; 2 wrong usage
"""


def arguments(argv):
    parser = argparse.ArgumentParser(prog="scripts/nccl-host", usage="%(prog)s [--source DIR|TARBALL] [--jobs N] [-- PROGRAM...]",
                                     description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", metavar="DIR|TARBALL",
                        help="NCCL's source; otherwise CLUSTAR_NCCL_SOURCE, otherwise the newest tarball in ../shared/data/nccl")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count(),
                        help="compilers at once, 1 to 256 (default: one per core, %(default)s)")
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parsed = parser.parse_args(argv)
    if not 1 <= parsed.jobs <= 256:
        parser.error(f"--jobs needs a number from 1 to 256, not {parsed.jobs}")
    if parsed.program[:1] == ["--"]:
        parsed.program = parsed.program[1:]
    return parsed


def environment(built, given=None):
    result = dict(os.environ if given is None else given)
    # It is ours; the plugin refuses settings of its prefix that it does not know.
    result.pop("CLUSTAR_NCCL_SOURCE", None)
    folders = [str(built.parent), result.get("LD_LIBRARY_PATH", ""), str(ROOT / "build/release/lib")]
    result["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    result["PATH"] = f"{built.parent}:{result.get('PATH', '')}"
    defaults = {"NCCL_NET_PLUGIN": "clustar", "NCCL_ALGO": "Ring", "NCCL_PROTO": "^LL128", "NCCL_CUMEM_ENABLE": "0",
                "NCCL_SOCKET_IFNAME": "lo", "CLUSTAR_SOCKET_IFNAME": "lo"}
    return {**defaults, **result}


def made_ready(plugin):
    """For a test: builds the library, and puts the folder `plugin`, if any, where programs look for one. 0, or the status
    to end with, whose reason is printed."""
    if plugin:
        os.environ["LD_LIBRARY_PATH"] = f"{plugin}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    built = subprocess.run([sys.executable, "-B", __file__], capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr.strip())
    else:
        Ready.library = pathlib.Path(built.stdout.strip())
        Ready.version = source.version(tree_of(None))
    return built.returncode


class Ready:
    """What made_ready found: to look for it again takes as long as a small program over it."""

    library = None
    version = None  # NCCL's, as (2, 28, 9)


def tree_of(named):
    """The folder of NCCL's source; `named`: by --source, or nothing."""
    return source.find(named, os.environ.get("CLUSTAR_NCCL_SOURCE"), ROOT.parent / "shared/data/nccl", ROOT / "build/nccl-host")


def run(words, given):
    """logged.run's answer of a program over NCCL's host code, for a test that called made_ready; `given`: its variables."""
    return logged.run([str(word) for word in words], environment(Ready.library, given))


def main(argv):
    args = arguments(argv)
    try:
        built = library.build(tree_of(args.source), ROOT / "build/nccl-host", args.jobs)
    except source.NotHere as error:
        print(f"SKIP: nccl-host: {error}", file=sys.stderr)
        return SKIP
    except (source.Wrong, library.Failed) as error:
        print(f"nccl-host: {error}", file=sys.stderr)
        return 1
    if not args.program:
        print(built)
        return 0
    try:
        return subprocess.run(["env", *args.program], env=environment(built), check=False).returncode
    except OSError as error:
        print(f"nccl-host: cannot run '{args.program[0]}': {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("nccl-host: interrupted; what is compiled is kept", file=sys.stderr)
        sys.exit(130)
