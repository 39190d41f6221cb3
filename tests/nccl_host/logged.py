"""A program over NCCL, whose processes each write NCCL's log into a file of their own: in one, their lines mix."""

import pathlib
import subprocess
import tempfile


def run(command, environment, **options):
    """subprocess.run's answer; before the standard output come the logs, one after the other. That of a program that is late, too."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(command, env={**environment, "NCCL_DEBUG_FILE": f"{folder}/%p"}, capture_output=True,
                                  text=True, check=False, errors="replace", **options)
        except subprocess.TimeoutExpired as late:
            # Of a late one there are bytes only.
            late.output, late.stderr = (with_logs(folder, late.output), (late.stderr or b"").decode(errors="replace"))
            raise
        done.stdout = with_logs(folder, done.stdout)
    return done


def with_logs(folder, output):
    if not isinstance(output, str):
        output = (output or b"").decode(errors="replace")
    logs = [log.read_text(errors="replace") for log in sorted(pathlib.Path(folder).iterdir())]
    return "\n".join([*logs, output])
