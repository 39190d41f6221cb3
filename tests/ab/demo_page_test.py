"""scripts/demo-page: its sentences tell what was measured, and what was not."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv[1]
TRAIN = {"command_line": "clustar train --ranks 4",
         "results": {"ranks": 4, "accuracy": 0.968, "train_s": 11.4, "bytes_sent": 3.04e9, "replicas_identical": True, "steps": 189}}
GRAY = {"command_line": "clustar ab --scenario gray", "training": {"scenarios": [{"ranks": 8, "figures": [
    {"name": "tcp-bbr-rto5/all-to-all", "carrier": "tcp-bbr-rto5", "algorithm": "all-to-all", "step_ms": 1141.3, "step_ratio": None},
    {"name": "mlt-p0/all-to-all", "carrier": "mlt-p0", "algorithm": "all-to-all", "step_ms": 979.7, "runs": 5,
     "reference": "tcp-bbr-rto5/all-to-all", "step_ratio": {"ratio": 1.165, "low": 1.12, "high": 1.2}}]}]}}
COFLOW = {"command_line": "clustar coflow replay", "workload": {"load": {"busiest": 0.9}}, "results": [
    {"policy": "maxmin", "average_cct_s": 20.0, "bins": {"SN": {"coflows": 300}, "LW": {"coflows": 200}}},
    {"policy": "sebf", "average_cct_s": 12.0}, {"policy": "match", "average_cct_s": 10.0}]}


class DemoPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, **documents):
        for name, document in documents.items():
            (self.folder / f"{name}.json").write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return subprocess.run([SCRIPT, str(self.folder)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)

    def test_a_sentence_for_each_part_and_one_page(self):
        (self.folder / "gray.html").write_text("<svg/>", encoding="utf-8")
        done = self.write(train=TRAIN, gray=GRAY, coflow=COFLOW)
        self.assertEqual(done.returncode, 0, done.stderr)
        train, gray, coflow = done.stdout.splitlines()
        for words in ("4 ranks", "96.8 %", "3.0 GB", "identical after each of 189 steps"):
            self.assertIn(words, train)
        for words in ("1141 ms", "980 ms", "1.17 times (1.12 to 1.20)", "tcp-bbr-rto5"):
            self.assertIn(words, gray)
        for words in ("500 coflows at 90 % load", "2.00 times sooner", "1.20 times sooner than under Varys"):
            self.assertIn(words, coflow)
        page = (self.folder / "index.html").read_text(encoding="utf-8")
        for words in (train, "clustar train --ranks 4", "clustar coflow replay", 'src="gray.html"'):
            self.assertIn(words, page)
        self.assertNotIn("clustar ab", page)  # the page in the frame has it
        self.assertNotIn("coflow.html", page)  # which was not written

    def test_says_what_did_not_run(self):
        done = self.write(train=TRAIN)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("emulated hosts need root", done.stdout)
        self.assertIn("Coflows have no result", done.stdout)

    def test_replicas_that_diverged_are_no_success(self):
        diverged = {"results": dict(TRAIN["results"], replicas_identical=False)}
        self.assertIn("DIVERGED", self.write(train=diverged).stdout)

    def test_names_the_file_that_is_not_of_the_demo(self):
        for document in ("{", {"training": {"scenarios": []}}, {"training": {"scenarios": [{"figures": []}]}},
                         {"training": {"scenarios": [{"figures": [{"name": "mlt", "carrier": 1}]}]}}):
            refused = self.write(gray=document)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("gray.json' is not what scripts/demo writes", refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
