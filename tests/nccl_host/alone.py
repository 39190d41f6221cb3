"""One builder at a time in a folder, of all processes."""

import contextlib
import fcntl
import sys


@contextlib.contextmanager
def in_folder(folder):
    """Others wait here until this one is through; the kernel lets them in, too, where it is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"nccl-host: another one builds in {folder}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
