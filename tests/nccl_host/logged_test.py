"""A log for each process, also of a program that is ended for being late. Shells play NCCL's part."""

import os
import pathlib
import subprocess
import unittest

import logged

# As NCCL does, with the process's number for %p; each line in two writes, between which the other process may come.
TWO = """
log() { exec 3>>"${NCCL_DEBUG_FILE%%%p}$(sh -c 'echo $PPID')"; for i in 1 2 3 4 5; do printf "$1 " >&3; printf "$1\\n" >&3; done; }
log a & log b & wait
echo the program itself
"""


class Logged(unittest.TestCase):
    def test_lines_of_two_processes_do_not_mix(self):
        done = logged.run(["sh", "-c", TWO], {"PATH": os.environ["PATH"]})
        lines = done.stdout.split("\n")
        self.assertEqual(sorted(lines[:12]), [*2 * [""], *5 * ["a a"], *5 * ["b b"]], done.stdout)
        self.assertEqual(lines[12:], ["the program itself", ""])

    def test_a_late_one_has_its_logs(self):
        with self.assertRaises(subprocess.TimeoutExpired) as caught:
            logged.run(["sh", "-c", 'echo out; echo err >&2; echo log > "$NCCL_DEBUG_FILE"; exec sleep 60'], dict(os.environ), timeout=1)
        self.assertEqual((caught.exception.output, caught.exception.stderr), ("log\n\nout\n", "err\n"))

    def test_no_folder_is_left(self):
        done = logged.run(["sh", "-c", 'echo "$NCCL_DEBUG_FILE"'], dict(os.environ))
        self.assertFalse(pathlib.Path(done.stdout.strip()).parent.exists())


if __name__ == "__main__":
    unittest.main()
