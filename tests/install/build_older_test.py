#!/usr/bin/env python3
"""scripts/build-older where it cannot begin: which sentence, which exit status. The build itself needs Debian's mirror and
takes minutes: run it by hand."""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)


def run(*arguments, path=None, user=None):
    environment = {**os.environ, **({"PATH": path} if path else {})}
    done = subprocess.run(["/bin/bash", SCRIPT, *arguments], env=environment, capture_output=True, text=True, timeout=30,
                          check=False, user=user)
    return done.returncode, done.stdout + done.stderr


class BuildOlder(unittest.TestCase):
    def test_help_has_an_example_and_the_exit_status(self):
        status, output = run("--help")
        self.assertEqual(status, 0)
        for part in ("usage:", "Example:", "exit status:", "--tree", "--suite", "--jobs"):
            self.assertIn(part, output)

    def test_wrong_usage_is_named(self):
        for arguments, why in ((["--jobs", "0"], "--jobs needs a positive number"), (["--tree"], "--tree needs a value"),
                               (["--tree", "--jobs"], "--tree needs a value"),
                               (["--fast"], "unknown option '--fast'")):
            status, output = run(*arguments)
            self.assertEqual(status, 2, output)
            self.assertIn(why, output)

    def test_what_is_missing_is_named(self):
        if os.geteuid() != 0:
            status, output = run()
            self.assertEqual(status, 77)
            self.assertIn("needs root", output)
            return
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("bash", "dirname", "nproc", "id"):
                os.symlink(f"/usr/bin/{tool}", os.path.join(folder, tool))
            status, output = run(path=folder)
            self.assertEqual(status, 77, output)
            self.assertIn("clang++ is not installed: run scripts/setup first", output)


if __name__ == "__main__":
    unittest.main()
