#!/usr/bin/env python3
"""gpu_torch's verdicts on made-up training, and torch_train.py itself over gloo where PyTorch is installed."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import gpu_torch

HERE = os.path.dirname(os.path.abspath(__file__))
TOTALS = {"delivered_bytes": 1000, "missing_bytes": 0, "eligible_bytes": 0, "sent_messages": 5, "identified_messages": 5,
          "tolerant_messages": 0}


def report(**changes):
    row = {"mode": "ddp", "losses": [1.0, 0.5], "digest": "aa", "bytes": 4096, "type": "float32", "step_s": 0.03}
    totals = {**TOTALS, **changes.pop("totals", {})}
    return {"torch": "2.11", "steps": 20, "totals": totals, "trained": [{**row, **changes}]}


class Judge(unittest.TestCase):
    def wrong(self, reports, exact=True, reference=None):
        return gpu_torch.judge(reports, exact, reference or {})[0]

    def test_alike_and_as_over_socket(self):
        wrong, seen = gpu_torch.judge([report(), report()], True, {"ddp": "aa"})
        self.assertEqual(wrong, "")
        self.assertIn("and those of ddp equal to those over NCCL's Socket", gpu_torch.text(seen, True))
        self.assertNotIn("Socket", gpu_torch.text(gpu_torch.judge([report(), report()], True, {})[1], True))

    def test_what_fails(self):
        lossy = {"missing_bytes": 10, "eligible_bytes": 1000}
        for reports, exact, reference, why in (
                ([report(), report(digest="bb")], True, {}, "ddp: the replicas differ: aa, bb"),
                ([report(), report()], True, {"ddp": "cc"}, "over NCCL's Socket cc"),
                ([report(losses=[1.0, 0.95])] * 2, True, {}, "the loss was 1.0000, is 0.9500"),
                ([report(losses=[1.0, float("nan")])] * 2, True, {}, "is nan"),
                ([report(), report(totals={"sent_messages": 0})], True, {}, "sent no message"),
                ([report(totals=lossy)] * 2, True, {}, "bytes are missing where none may be"),
                ([report(totals=lossy), report()], False, {}, "nothing is missing"),
                ([report(), None], True, {}, "wrote no training")):
            self.assertIn(why, self.wrong(reports, exact, reference))
        self.assertEqual(self.wrong([report(totals=lossy)] * 2, exact=False, reference={"ddp": "other"}), "")

    def test_only_a_socket_run_that_passed_is_a_reference(self):
        seen = gpu_torch.judge([report(), report()], True, {})[1]
        case = {"name": "torch-socket", "outcome": "passed", "torch": seen}
        self.assertEqual(gpu_torch.reference_of([case]), {"ddp": "aa"})
        self.assertEqual(gpu_torch.reference_of([{**case, "outcome": "failed"}]), {})
        self.assertIn("| torch-socket | ddp | 0.0 MB | 1.0000, 0.5000 | aa | 30.0 |", gpu_torch.lines([case]))


class Train(unittest.TestCase):
    def test_two_ranks_over_gloo_end_alike(self):
        probe = [sys.executable, "-c", "import torch.distributed as d; raise SystemExit(not d.is_available())"]
        if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
            self.skipTest("PyTorch is not installed (Debian: python3-torch)")
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, "-B", os.path.join(HERE, "torch_train.py"), "--rank", str(rank),
                                       "--size", "2", "--idfile", os.path.join(folder, "id"), "--backend", "gloo",
                                       "--steps", "3", "--json", os.path.join(folder, f"{rank}.json")],
                                      env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}) for rank in range(2)]
            self.assertEqual([rank.wait(timeout=100) for rank in ranks], [0, 0])
            reports = []
            for rank in range(2):
                with open(os.path.join(folder, f"{rank}.json"), encoding="utf-8") as stream:
                    reports.append(json.load(stream))
        digests = {report["trained"][0]["digest"] for report in reports}
        self.assertEqual(len(digests), 1)
        self.assertEqual(reports[0]["trained"][0]["bytes"], 33574912)


if __name__ == "__main__":
    unittest.main()
