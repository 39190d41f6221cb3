"""scripts/training-table: what it refuses, and what it makes of the JSON of clustar ab --scenario."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SCRIPT = sys.argv[1]


def a_run(arm, accuracies, **more):
    steps = range(1, 64 * len(accuracies))
    return {**more, "arm": arm, "accuracy_curve": [[63 * (i + 1), 2.0 * (i + 1), one] for i, one in enumerate(accuracies)],
            "curve": {"step": list(steps), "train_s": [0.03 * step for step in steps], "loss": [2.3 / step for step in steps]}}


def document(scenario="gray", target=None):
    ratio = {"ratio": 1.25, "low": 1.2, "high": 1.31, "pairs": 10}
    lossy = {"name": "mlt-p1/ring", "runs": 3, "step_ms": 69.1, "step_p99_ms": 96.4, "step_ratio": ratio, "time_ratio": dict(ratio, ratio=1.5),
             "time_to_accuracy_s": 12.34, "reached": 2, "growth": {"ratio": 1.02, "low": None, "high": None}, "accuracy": 0.9707,
             "accuracy_difference": {"mean": -0.0008, "low": -0.0027, "high": 0.0011, "pairs": 3}, "missing_share": 0.00457,
             "eligible_bytes": 1e9, "bound": 0.01, "worst_charge": 0.0085, "switch_lost_on_purpose": 157867.0, "switch_dropped_full": 0.0}
    return {"command_line": "clustar ab --scenario gray", "machine": {"cores": 2, "kernel": "6.1"}, "training": {
        "options": {"model": "mlp", "epochs": 6, "rounds": 3, "target_accuracy": target}, "load_average_before": [0.5, 0.4, 0.3],
        "bars": [{"scenario": scenario, "arm": "mlt-p1/ring", "what": "a|bar", "text": "1.25, 10 pairs", "met": False},
                 {"scenario": scenario, "arm": "mlt-p0/ring", "what": "another", "text": "-", "met": None},
                 {"scenario": "elsewhere", "arm": "x", "what": "not of this scenario", "text": "-", "met": True}],
        "scenarios": [{"name": scenario, "title": "A gray link", "ranks": 8, "place": {"text": "8 hosts, 100Mbit/s"}, "notes": ["a note"],
                       "arms": [{"name": "tcp-bbr-rto5/ring"}, {"name": "mlt-p1/ring"}, {"name": "never/ring"}],
                       "figures": [{"name": "tcp-bbr-rto5/ring", "runs": 3, "step_ms": 86.4, "accuracy": 0.9715, "missing_share": None}, lossy],
                       "runs": [a_run("tcp-bbr-rto5/ring", [0.8, 0.9]), a_run("tcp-bbr-rto5/ring", [0.6, 0.94]),
                                a_run("mlt-p1/ring", [0.75, 0.95]), {"arm": "mlt-p1/ring", "failed": "killed"}]}]}}


def convert(*words):
    return subprocess.run([SCRIPT, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)


class Table(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def save(self, content, name="in.json"):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def test_bad_files_are_named(self):
        for words, expected in (((str(self.folder / "none.json"),), "cannot read"), ((self.save("{}", "empty.json"),), "training.scenarios"),
                                ((self.save("no json", "text.json"),), "training.scenarios"), (("--out", "table.txt", self.save(document())), ".md"),
                                (("--out", "/nonexistent/t.md", self.save(document())), "/nonexistent/t.md")):
            done = convert(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)

    def test_two_files_with_the_same_pictures_are_refused(self):
        done = convert("--out", str(self.folder / "t.md"), self.save(document()), self.save(document(), "again.json"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("mlp-gray", done.stderr)

    def test_equal_steps(self):
        text = convert(self.save(document())).stdout
        self.assertIn("| mlt-p1/ring | 3 | 69.1 | 96 | 1.250 (1.200 to 1.310) | 1.020 | 97.07 % | -0.08 (-0.27 to 0.11) | 0.457 % | 85 % | 157,867 | 0 |", text)
        self.assertIn("| tcp-bbr-rto5/ring | 3 | 86.4 | - | - | - | 97.15 % | - | - | - | - | - |", text)
        self.assertIn("| tcp-bbr-rto5/ring | 70.00 (60.0 to 80.0) | 92.00 (90.0 to 94.0) |", text)
        self.assertIn("| mlt-p1/ring | 75.00 (75.0 to 75.0) | 95.00 (95.0 to 95.0) |", text, "the run that failed is left out")
        self.assertIn("| gray | mlt-p1/ring | a\\|bar | 1.25, 10 pairs | **missed** |", text)
        self.assertIn("| gray | mlt-p0/ring | another | - | no verdict |", text)
        self.assertNotIn("not of this scenario", text)
        self.assertNotIn("to the target", text, "a column in which nothing would be")
        self.assertNotIn("![curves]", text, "nowhere to write them")

    def test_time_to_accuracy(self):
        text = convert(self.save(document(target=0.95))).stdout
        self.assertIn("until 95 % held-out accuracy", text)
        self.assertIn("| 1.500 (1.200 to 1.310) | 12.3 (2/3) |", text)

    def test_the_curves_are_a_picture_beside_it(self):
        out = self.folder / "training-today.md"
        done = convert("--out", str(out), self.save(document()), self.save(document("clean"), "clean.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("![curves](training-today-mlp-clean.svg)", out.read_text(encoding="utf-8"))
        picture = xml.etree.ElementTree.parse(self.folder / "training-today-mlp-gray.svg").getroot()
        lines = [one for one in picture.iter() if one.tag.endswith("polyline")]
        self.assertEqual(len(lines), 6, "three panels of two arms that have runs")
        width, height = (float(one) for one in picture.get("viewBox").split()[2:])
        for line in lines:
            for point in line.get("points").split():
                x, y = (float(one) for one in point.split(","))
                self.assertTrue(0 <= x <= width and 0 <= y <= height, point)

    def test_an_interrupted_run_says_so(self):
        half = document()
        half["training"].update(interrupted=True, ended_by="signal 2")
        self.assertIn("**Not complete: signal 2.**", convert(self.save(half)).stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
