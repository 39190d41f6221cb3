#!/usr/bin/env python3
"""Replaying runs what lies in a crash slot: a planted input crashes its target, and is named. Argument: planted_crash."""

import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

TARGET = sys.argv.pop()


def replay(*paths):
    return subprocess.run([TARGET, *map(str, paths)], capture_output=True, text=True, timeout=30, check=False)


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.corpus, self.slot = (pathlib.Path(folder.name) / name for name in ("corpus", "crashes"))
        self.corpus.mkdir()
        self.slot.mkdir()
        (self.corpus / "seed").write_text("harmless")
        (self.slot / "README.md").write_text("planted")

    def test_a_slot_with_its_page_only_is_empty(self):
        done = replay(self.corpus, self.slot)
        self.assertEqual((done.returncode, done.stdout), (0, "inputs: 1 from files, 500 at random\n"), done.stderr)
        self.assertEqual(replay(self.slot).returncode, 1)

    def test_a_planted_crash_is_replayed_and_named(self):
        crash = self.slot / "crash-1"
        crash.write_text("planted")
        for arguments in ((self.corpus, self.slot), (crash,)):
            done = replay(*arguments)
            self.assertEqual(done.returncode, -signal.SIGABRT, done.stderr)
            self.assertIn(f"crashed by {crash}", done.stderr)

    def test_a_file_is_replayed_alone(self):
        done = replay(self.corpus / "seed")
        self.assertEqual((done.returncode, done.stdout), (0, "inputs: 1 from files, 0 at random\n"), done.stderr)

    def test_what_is_not_there_is_an_error(self):
        self.assertEqual(replay(self.corpus, self.slot / "none").returncode, 2)
        self.assertEqual(replay().returncode, 2)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the crash is meant
    unittest.main()
