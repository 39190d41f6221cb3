#!/usr/bin/env python3
"""The training cases of gpu-check with bench/proxy in NCCL's place: real packets, real loss, the same judge.

Arguments: proxy-check, the plugin.
"""

import contextlib
import dataclasses
import io
import os
import sys
import tempfile
import unittest
from unittest import mock

import gpu_check

PROGRAM, PLUGIN = "", ""


TRAINING = [case for case in gpu_check.CASES if case.loss is not None]


class OverProxy(unittest.TestCase):
    def run_cases(self, cases):
        """Exit status and output of gpu-check with just these."""
        with tempfile.TemporaryDirectory(prefix="clustar-gpu-test-") as folder:
            for name, source in (("bin/nccl-check", PROGRAM), ("lib/libnccl-net-clustar.so", PLUGIN),
                                 ("lib/libnccl-net-clustar-log.so", PLUGIN)):
                path = os.path.join(folder, "build", name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.symlink(source, path)
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), \
                    mock.patch.object(gpu_check, "CASES", cases):
                folders = ["--build", os.path.join(folder, "build"), "--out", os.path.join(folder, "out")]
                status = gpu_check.main(folders, has_gpu=lambda: True, program=[PROGRAM])
        print(output.getvalue())
        return status, output.getvalue()

    def test_the_training_cases_pass(self):
        self.assertEqual({case.loss for case in TRAINING}, {0.01, 0.0})
        status, output = self.run_cases(TRAINING)
        self.assertEqual(status, 0, output)

    def test_more_loss_than_claimed_fails(self):
        worse = {**TRAINING[0].environment, "CLUSTAR_INJECT_FAULTS": "loss=0.1",
                 "CLUSTAR_LOSS_RULES": "func=allreduce,p=0.1"}
        status, output = self.run_cases([dataclasses.replace(TRAINING[0], environment=worse)])
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"B of contributions are missing, more than 0.01 of \d+ B")

    def test_loss_where_none_is_claimed_fails(self):
        status, output = self.run_cases([dataclasses.replace(TRAINING[0], loss=0.0)])
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"rank 0, step \d+: \d+ B of contributions are missing, more than 0.0 of")


if __name__ == "__main__":
    PROGRAM, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
