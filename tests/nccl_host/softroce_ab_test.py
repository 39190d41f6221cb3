"""scripts/softroce-ab: what counts as a result, what is made of it, and one round in the virtual machine.

usage: softroce_ab_test.py --plugin DIR; DIR: where the plugin and its modules are
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import softroce_ab
import softroce_count

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERF = "   0       262144        65536    float        sum     732293.7          0\n# checked: 0 wrong\n"


def log(network):
    return f"host:1:1 [0] NCCL INFO Using network {network}\n"


class Figures(unittest.TestCase):
    def test_of_a_good_run(self):
        self.assertEqual(softroce_ab.figures(2 * log("IB") + PERF, 2, "IB"), 732293.7)

    def test_of_one_that_went_another_way(self):
        """NCCL takes its sockets in silence where a transport fails."""
        for text in (log("IB") + log("Socket"), log("IB"), 2 * log("clustar"), 2 * log("IBx")):
            with self.assertRaisesRegex(softroce_ab.Failed, "of 2 ranks used the network IB"):
                softroce_ab.figures(text + PERF, 2, "IB")

    def test_of_wrong_bits(self):
        for text in (PERF.replace(" 0\n", " 7\n"), PERF.replace("0 wrong", "7 wrong"), ""):
            with self.assertRaises(softroce_ab.Failed):
                softroce_ab.figures(2 * log("IB") + text, 2, "IB")


class Settings(unittest.TestCase):
    def test_settings(self):
        self.assertEqual(softroce_ab.settings_of(""), {})
        self.assertEqual(softroce_ab.settings_of("A=1,B=x\\,y,C="), {"A": "1", "B": "x,y", "C": ""})
        for wrong in ("A", "A=1,", "1=2"):
            with self.assertRaises(argparse.ArgumentTypeError):
                softroce_ab.settings_of(wrong)

    def test_wrong_usage(self):
        for words in (["--rounds", "0"], ["--ranks", "3"], ["--size", "x"], ["--plugin", "/nonexistent"], ["--baseline", "A"]):
            done = subprocess.run([ROOT / "scripts/softroce-ab", *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(words[0], done.stderr)

    def test_arms_take_turns(self):
        self.assertEqual([softroce_ab.order_of_round(index, ["A", "B"]) for index in range(3)], [["A", "B"], ["B", "A"], ["A", "B"]])


class Counters(unittest.TestCase):
    def test_of_tc(self):
        shown = [{"protocol": "ip"}, {"options": {"actions": [{"kind": "gact", "stats": {"packets": 3, "bytes": 99}}]}}]
        self.assertEqual(softroce_count.filter_counters(json.dumps(shown)), (3, 99))
        with self.assertRaises(ValueError):
            softroce_count.filter_counters("[]")


class InTheMachine(unittest.TestCase):
    plugin = ""

    def test_one_round(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "result.json")
            done = subprocess.run([ROOT / "scripts/softroce-ab", "--rounds", "1", "--iters", "1", "--size", "256K", "--plugin", self.plugin,
                                   "--json", file], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode == softroce_ab.SKIP:
                self.skipTest("the machine or NCCL's source is missing; see above")
            self.assertEqual(done.returncode, 0, done.stdout)
            result = json.loads(file.read_text(encoding="utf-8"))["results"][0]
        self.assertIn("emulated", done.stdout)
        self.assertIn("time B/A", done.stdout)
        # Each of two ranks sends half of the data twice.
        payload = 2 * 262144
        for arm in result["arms"]:
            self.assertGreater(arm["roce_bytes"]["median"], payload, "all of it went over the cable")
            self.assertLess(arm["roce_bytes"]["median"], 1.5 * payload)
            self.assertGreater(arm["roce_packets"]["median"], payload / 4096)
        self.assertEqual([run["arm"] for run in result["runs"]], ["A", "B"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", required=True)
    known, rest = parser.parse_known_args()
    InTheMachine.plugin = str(pathlib.Path(known.plugin).resolve())
    program = unittest.main(argv=[sys.argv[0], *rest], exit=False)
    skipped = program.result.skipped and program.result.wasSuccessful()
    sys.exit(softroce_ab.SKIP if skipped else not program.result.wasSuccessful())
