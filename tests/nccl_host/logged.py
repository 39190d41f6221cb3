"""A program over NCCL, whose processes each write NCCL's log into a file of their own: in one, their lines mix."""

import pathlib
import subprocess
import tempfile


def run(command, environment, **options):
    """subprocess.run's answer; before the standard output come the logs, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, env={**environment, "NCCL_DEBUG_FILE": f"{folder}/%p"}, capture_output=True, text=True,
                              check=False, errors="replace", **options)
        logs = [log.read_text(errors="replace") for log in sorted(pathlib.Path(folder).iterdir())]
    done.stdout = "\n".join([*logs, done.stdout])
    return done
