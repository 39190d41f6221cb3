"""scripts/lossy-table: what it refuses, and what it makes of the suite's JSON."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT, BUILD = sys.argv[1], sys.argv[2]

ARM = {"name": "mlt-p0", "rounds": 1000, "p50_ms": 44.1, "p99_ms": 46.2, "p999_ms": 50.3, "stalled_rounds": 7, "p99_with_stalls_ms": 48.9, "goodput_gbps": 0.19, "missing_bytes": 0,
       "eligible_bytes": 0, "retransmitted": 12345, "cpu_s_per_gbit": 0.41, "machine_cpu_s_per_gbit": 0.61}
BARS = [{"text": "mlt-p0: p99 over p50", "at_most": 1.15, "figure": 1.048, "spread": [1.01, 1.2], "met": True},
        {"text": "mlt-p0: p99 over ideal", "at_most": 1.05, "figure": 1.06, "figure_less_bucket": 1.07, "spread": [1, 2],
         "met": False, "indicative": True},
        {"text": "a|b", "at_least": 3, "figure": 2, "spread": [1, 2], "met": None, "void_because": "2 packets"},
        {"text": "not there", "at_least": 3, "figure": None, "met": None}]


def document():
    return {"command_line": "clustar perf --suite lossy", "machine": {"cores": 2, "kernel": "6.1"},
            "results": {"load_average_before": [0.5, 0.4, 0.3], "load_average_after": None, "other_cpu": None, "scenarios": [
                {"name": "loss", "title": "1 % loss", "ideal_ms": 44.6, "arms": [
                    ARM, {"name": "mlt-p1", "rounds": 2, "missing_bytes": 5, "eligible_bytes": 1000, "indicative": True},
                    {"name": "mptcp", "rounds": 0, "skipped": "no MPTCP"}, {"name": "tcp-bbr", "rounds": 0, "failure": "killed"}],
                 "bars": BARS, "notes": ["a note"]},
                {"name": "bad-path", "skipped": "no routers", "arms": [], "bars": []}]}}


def run(*words):
    return subprocess.run([SCRIPT, "--build", BUILD, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=60)


class Usage(unittest.TestCase):
    def test_bad_values_are_named(self):
        for words, expected in ((("--from", "/nonexistent/a.json"), "cannot read"), (("--from", SCRIPT), "results.scenarios"),
                                (("--from", "x", "--quick"), "only converts"), (("--out", "/nonexistent/t.md"), "/nonexistent/t.md"),
                                (("--build", "/nonexistent"), "build it"), (("--", "--scenario", "lost"), "micro-bursts")):
            done = run(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)


class Runs(unittest.TestCase):
    """With a suite that is a script: it fails before it writes, or writes and fails."""

    def run_with(self, suite):
        build, results, table = pathlib.Path(self.folder, "bin"), pathlib.Path(self.folder, "r.json"), pathlib.Path(self.folder, "r.md")
        build.mkdir(exist_ok=True)
        (build / "clustar").write_text("#!/bin/sh\n" + suite, encoding="utf-8")
        (build / "clustar").chmod(0o755)
        old = json.dumps(document())
        results.write_text(old, encoding="utf-8")
        table.write_text("old table", encoding="utf-8")
        done = run("--build", self.folder, "--json", str(results), "--out", str(table))
        return done, results.read_text(encoding="utf-8") == old, table.read_text(encoding="utf-8")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_results_of_an_earlier_run_are_not_todays(self):
        done, is_old, table = self.run_with("exit 1\n")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertTrue(is_old)
        self.assertEqual(table, "old table")
        self.assertIn("wrote no results; as they were before", done.stderr)

    def test_what_an_interrupted_run_wrote_is_kept(self):
        new = document()
        new["results"].update(ended_by="interrupted", unfinished=["cpu"])
        source = pathlib.Path(self.folder, "new")
        source.write_text(json.dumps(new), encoding="utf-8")
        done, is_old, table = self.run_with(f'while [ "$1" != --json ]; do shift; done; cp "{source}" "$2"; exit 1\n')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertFalse(is_old)
        self.assertIn("not measured: cpu", table)
        self.assertEqual(done.stdout, table)


class Conversion(unittest.TestCase):
    def convert(self, content):
        with tempfile.TemporaryDirectory() as folder:
            source, out = pathlib.Path(folder, "r.json"), pathlib.Path(folder, "r.md")
            source.write_text(json.dumps(content), encoding="utf-8")
            done = run("--from", str(source), "--out", str(out))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(out.read_text(encoding="utf-8"), done.stdout)
            return done.stdout

    def test_figures_and_bars(self):
        text = self.convert(document())
        for line in ("| mlt-p0 | 1,000 | 44.10 | 46.20 | 50.30 | 7 | 48.90 | 0.1900 | 0 | 12,345 | 0.4100 | 0.6100 |",
                     "| loss | mlt-p0: p99 over p50 | at most 1.15 | 1.048 | 1.010 to 1.200 | met |",
                     "| loss | a\\|b | at least 3 | 2.000 | 1.000 to 2.000 | void: 2 packets |",
                     "| loss | not there | at least 3 | - | - | not measured |",
                     "**missed**, indicative", "bucket: 1.070", "not measured: no MPTCP", "FAILED: killed", "0.500 %",
                     "Not measured: no routers", "Fewer than 1,000 rounds", "- a note"):
            self.assertIn(line, text)
        for line in text.splitlines():
            if line.startswith("| mlt") or line.startswith("| mptcp"):
                self.assertEqual(line.count(" | "), 11, line)

    def test_an_early_end_is_said(self):
        content = document()
        content["results"].update(ended_by="interrupted", unfinished=["incast", "cpu"])
        self.assertIn("Ended early: interrupted; not measured: incast, cpu", self.convert(content))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
