#!/usr/bin/env python3
"""What a GPU check makes of `clustar train --device cuda`: each way in which a run may be wrong fails its row, and no other."""

import os
import sys
import tempfile
import unittest
from unittest import mock

import gpu_check
import gpu_trainer

RIGHT = {"loss": 0.5, "images_per_second": 100.0, "compute_device": {"kind": "cuda", "emulated": True, "math": "own kernels"},
         "update": "device", "replicas_identical": True, "missing_bytes": 10, "eligible_bytes": 1000,
         "expected_contributions": 250}


class Trainer(unittest.TestCase):
    def outcomes(self, wrong=None, of="", why_no_nccl=""):
        """Of all rows; `wrong`: what a run on the device has in place of RIGHT, those whose command has the word `of`."""
        def train(place, options, environment, work, limit):
            on_device = "--device" in options
            concerned = wrong is not None and on_device and of in options
            if isinstance(wrong, str) and concerned:
                return wrong, None
            return "", {**RIGHT, **(wrong if concerned else {})}

        place = gpu_trainer.Place(sys.executable, {}, driver="emulated", nccl="nccl", why_no_nccl=why_no_nccl)
        with mock.patch.object(gpu_trainer, "train", train), tempfile.TemporaryDirectory() as work:
            section = gpu_trainer.run(place, work)
        return section, {row["name"]: row["outcome"] for row in section["rows"]}

    def test_all_right(self):
        section, rows = self.outcomes()
        self.assertEqual(section["outcome"], "passed")
        self.assertEqual({rows[name] for name in ("lr", "cnn", "gpt", "nccl-tcp", "nccl-mlt", "nccl-lossy", "nccl-direct")}, {"passed"})
        self.assertEqual(rows["vgg16"], "skipped")
        text = "\n".join(gpu_trainer.lines(section))
        self.assertIn("| lr | passed | 0.50000, 0.50000 | emulated: not measured |", text)

    def test_what_is_wrong_fails_its_row(self):
        for wrong, of in (({"loss": 0.6}, "cnn"), ({"loss": float("nan")}, "cnn"), ({"loss": None}, "cnn"), ("ended with status 1: no driver", "cnn"),
                          ({"compute_device": {"kind": "cuda", "emulated": False}}, "cnn"), ({"compute_device": None}, "cnn")):
            section, rows = self.outcomes(wrong, of)
            self.assertEqual((section["outcome"], rows.pop("cnn")), ("failed", "failed"), wrong)
            self.assertNotIn("failed", rows.values(), wrong)
            self.assertIn("| cnn | failed |", "\n".join(gpu_trainer.lines(section)))
        for wrong in ({"replicas_identical": False}, {"update": "host"}):
            rows = self.outcomes(wrong, "nccl")[1]
            self.assertEqual({rows[name] for name in gpu_trainer.OVER_NCCL}, {"failed"}, wrong)
        for missing in (0, 51):
            rows = self.outcomes({"missing_bytes": missing}, "nccl")[1]
            self.assertEqual((rows["nccl-lossy"], rows["nccl-direct"], rows["nccl-tcp"]), ("failed", "failed", "passed"), missing)
        rows = self.outcomes({"expected_contributions": 0}, "nccl")[1]
        self.assertEqual((rows["nccl-direct"], rows["nccl-lossy"]), ("failed", "passed"))

    def test_without_nccl_the_rest_runs(self):
        section, rows = self.outcomes(why_no_nccl="NCCL's source was not found")
        self.assertEqual((section["outcome"], rows["nccl-tcp"], rows["gpt"]), ("passed", "skipped", "passed"))

    def test_a_missing_program_is_said(self):
        place = gpu_trainer.Place("/nonexistent/clustar", {})
        self.assertEqual(gpu_trainer.run(place, "/tmp")["outcome"], "skipped")

    def test_emulated_needs_its_driver(self):
        with tempfile.TemporaryDirectory() as build, mock.patch("sys.stderr") as said:
            self.assertEqual(gpu_check.main(["--emulated", "--build", build, "--out", os.path.join(build, "out")]), 1)
        self.assertIn("the emulated driver", "".join(str(call) for call in said.write.call_args_list))


if __name__ == "__main__":
    unittest.main()
