"""Runs commands side by side, and shows what each said, one after the other.

usage: side_by_side.py COMMAND... [--and COMMAND...]...
exit status: 1 one failed; 77 none failed, and one could not run here; 0
"""

import signal
import subprocess
import sys
import tempfile

CANNOT = 77


def commands_of(words):
    commands = [[]]
    for word in words:
        if word == "--and":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def main(words):
    commands = commands_of(words)
    if not all(commands):
        print(__doc__, file=sys.stderr)
        return 2
    running = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the end below
    try:
        for command in commands:
            said = tempfile.TemporaryFile()
            running.append((subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT), said))
        statuses = [process.wait() for process, _ in running]
    finally:
        for process, _ in running:
            if process.poll() is None:
                process.terminate()
                process.wait()
        for _, said in running:
            said.seek(0)
            sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    if any(status not in (0, CANNOT) for status in statuses):
        print(f"side_by_side: ended with {', '.join(map(str, statuses))}")
        return 1
    return CANNOT if CANNOT in statuses else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
