"""side_by_side.py: that commands run at once, and what becomes of their words and statuses."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).with_name("side_by_side.py")


def run(*words):
    return subprocess.run([sys.executable, "-B", PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)


class SideBySide(unittest.TestCase):
    def test_at_once(self):
        # Each waits for what the other makes.
        with tempfile.TemporaryDirectory() as folder:
            meet = 'touch "$0/$1"; until [ -e "$0/$2" ]; do sleep 0.01; done; echo "$1 met $2"'
            done = run("bash", "-c", meet, folder, "a", "b", "--and", "bash", "-c", meet, folder, "b", "a")
        self.assertEqual((done.returncode, done.stdout), (0, "a met b\nb met a\n"))

    def test_statuses(self):
        ends = {("0", "0"): 0, ("3", "0"): 1, ("0", "77"): 77, ("77", "3"): 1, ("77", "77"): 77}
        for (first, second), status in ends.items():
            self.assertEqual(run("bash", "-c", f"exit {first}", "--and", "bash", "-c", f"exit {second}").returncode, status)

    def test_usage(self):
        for words in ((), ("true", "--and")):
            done = run(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn("usage", done.stderr)


if __name__ == "__main__":
    unittest.main()
