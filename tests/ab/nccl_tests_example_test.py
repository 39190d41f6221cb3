"""examples/nccl-tests.sh: what it would run, and what it refuses. The benchmark itself needs GPUs."""
import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples/nccl-tests.sh"


def run(*arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NCCL_", "CLUSTAR_"))}
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False, env={**environment, **variables})
    return done.returncode, done.stdout, done.stderr


def main():
    status, out, _ = run("--tests", "/there", "--hosts", "a:1,b:1", "--rounds", "2", "--print",
                         CLUSTAR_TRANSPORT="mlt", NCCL_NET="IB")
    commands = out.splitlines()
    assert status == 0 and len(commands) == 4, out
    # In turns, and the second round the other way round.
    assert ["NCCL_NET=clustar" in command for command in commands] == [True, False, False, True], out
    for command in commands:
        assert command.startswith("mpirun -H a:1,b:1 ") and command.endswith("/there/all_reduce_perf -b 64K -e 256M -f 2 -g 1"), command
        assert "-x CLUSTAR_TRANSPORT " in command and "NCCL_NET=IB" not in command, command
    for arguments, said in [((), "--tests names no folder"), (("--tests", "/there"), "--hosts names no hosts"),
                            (("--tests", "/there", "--hosts", "a"), "has no all_reduce_perf"), (("--tests",), "--tests needs a value"),
                            (("--tests", "/there", "--hosts", "a", "--rounds", "0"), "from 1 to 999"), (("--what",), "unknown option '--what'")]:
        status, _, error = run(*arguments)
        assert status == 2 and said in error, (arguments, status, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
