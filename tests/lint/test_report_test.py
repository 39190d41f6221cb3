"""scripts/test_report.py: a whole program counts by test, and what ends too early does not pass."""

import os
import subprocess
import sys
import tempfile
import unittest
import xml.sax.saxutils

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "test_report.py")


class TestReport(unittest.TestCase):
    ENDED = "[==========] 3 tests from 1 test suite ran. (5 ms total)\n"

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def report(self, output, name="program.x", status="run"):
        text = xml.sax.saxutils.escape("[==========] Running 3 tests from 1 test suite.\n" + output)
        path = os.path.join(self.folder.name, "report.xml")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(f'<testsuite><testcase name="{name}" time="1" status="{status}">'
                         f"<system-out>{text}</system-out></testcase></testsuite>")
        self.short = os.path.join(self.folder.name, "failed.txt")
        done = subprocess.run([sys.executable, "-B", SCRIPT, path, self.short, "asan"],
                              capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def in_short(self):
        with open(self.short, encoding="utf-8") as stream:
            return stream.read().splitlines()

    def one(self, name, how="      OK", text=""):
        return f"[ RUN      ] {name}\n{text}[ {how} ] {name} (1 ms)\n"

    def test_each_counts(self):
        skip = self.one("S.B/0", " SKIPPED", "x.cc:1: Skipped\nno such device\n")
        good = self.one("S.A", text="no end of line") + skip + self.one("S.C") + self.ENDED
        self.assertEqual(self.report(good), ["SKIPPED S.B/0: no such device", "2 0 1"])
        self.assertEqual(self.report(good, name="Another.Entry"), ["1 0 0"])
        bad = self.one("S.A") + skip + self.one("S.C/1", " FAILED ", "x.cc:2: Failure\n").replace(" (1", ", where GetParam() = 1 (1") + self.ENDED
        lines = self.report(bad, status="fail")
        self.assertEqual((lines[1], lines[-1]), ("FAILED S.C/1 after 1.0 s", "1 1 1"))
        self.assertIn("  | x.cc:2: Failure", lines)
        self.assertEqual(self.in_short()[:2], ["asan: FAILED S.C/1 after 1.0 s", "  | x.cc:2: Failure"])

    def test_a_failed_case_is_said_in_short(self):
        self.report("FAIL  verbs  cut  too late\npass  mlt  clean\n" + "counter\n" * 50, name="rdma.programs", status="fail")
        self.assertEqual(self.in_short()[1:], ["  | FAIL  verbs  cut  too late"])

    def test_an_early_end_fails(self):
        for status in ("run", "fail"):
            lines = self.report(self.one("S.A") + "[ RUN      ] S.B\n", status=status)
            self.assertEqual((lines[0], lines[-1]), ("FAILED program.x after 1.0 s: 1 of 3 tests ended", "1 1 0"))
        self.assertEqual(self.report(self.one("S.A") + self.one("S.B") + self.ENDED)[-1], "2 1 0")

    def test_what_fails_after_the_last_test_fails(self):
        lines = self.report("".join(self.one("S." + name) for name in "ABC") + self.ENDED + "ERROR: LeakSanitizer\n", status="fail")
        self.assertEqual((lines[0], lines[-1]), ("FAILED program.x after 1.0 s: 3 of 3 tests ended", "3 1 0"))
        self.assertIn("  | ERROR: LeakSanitizer", lines)
        self.assertEqual(self.in_short()[-1], "  | ERROR: LeakSanitizer")

    def test_what_passes_is_not_said_again(self):
        self.report("".join(self.one("S." + name) for name in "ABC") + self.ENDED)
        self.assertFalse(os.path.exists(self.short))


if __name__ == "__main__":
    unittest.main()
