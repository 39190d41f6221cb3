#!/usr/bin/env python3
"""What a GPU check makes of kernel-check's results and of compute-sanitizer, by stand-ins for both."""

import json
import os
import stat
import tempfile
import unittest

import gpu_kernels

SPEED = {"bytes_per_s": 3e12, "copy_bytes_per_s": 4e12, "of_copy": 0.75, "of_copy_least": 0.7, "of_copy_most": 0.76}
FOUND = {"emulated": False, "bytes": 4096, "kernels": [
    {"kernel": "clustar_add", "right": True, "reason": "", "speed": {**SPEED, "of_copy": 0.9}},
    {"kernel": "clustar_gemm_nn", "right": True, "reason": "", "speed": {"tflops": 12.5}},
    {"kernel": "clustar_relu", "right": True, "reason": "", "speed": SPEED}]}


class Kernels(unittest.TestCase):
    def section(self, found=None, status=0, sanitizer_status=0, text=""):
        with tempfile.TemporaryDirectory() as work:
            def script(name, body):
                path = os.path.join(work, name)
                with open(path, "w", encoding="utf-8") as stream:
                    stream.write("#!/bin/sh\n" + body)
                os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
                return path
            results = os.path.join(work, "given.json")
            if found is not None:
                with open(results, "w", encoding="utf-8") as stream:
                    json.dump(found, stream)
            program = script("kernel-check", f'while [ "$1" != --json ]; do shift; done\ncp {results} "$2" 2>/dev/null\n'
                                             f'echo "{text}"\nexit {status}\n')
            sanitizer = script("compute-sanitizer", f"echo looked at $2\nexit {sanitizer_status}\n")
            return gpu_kernels.run([program], work, dict(os.environ), sanitizer=sanitizer)

    def test_right_and_slow_is_reported_not_failed(self):
        section = self.section(FOUND)
        self.assertEqual(section["outcome"], "passed")
        self.assertIn("below 0.8 of a copy's bandwidth: clustar_relu", section["reason"])
        text = "\n".join(gpu_kernels.lines(section))
        self.assertIn("| clustar_relu | right | 3000 GB/s | 0.75 [0.70, 0.76] |", text)
        self.assertIn("| clustar_gemm_nn | right | 12.50 TFLOP/s | - |", text)
        self.assertIn("compute-sanitizer racecheck: passed", text)

    def test_a_wrong_kernel_fails(self):
        wrong = {**FOUND, "kernels": [{"kernel": "clustar_add", "right": False, "reason": "element 3 is 1, by float64 2"}]}
        section = self.section(wrong, status=1)
        self.assertEqual((section["outcome"], section["reason"]), ("failed", "clustar_add: element 3 is 1, by float64 2"))
        self.assertIn("**element 3", "\n".join(gpu_kernels.lines(section)))

    def test_what_the_sanitizer_finds_fails(self):
        section = self.section(FOUND, sanitizer_status=9)
        self.assertEqual(section["outcome"], "failed")
        self.assertIn("compute-sanitizer memcheck: ended with status 9: looked at memcheck", section["reason"])

    def test_no_device_where_there_is_a_gpu_and_no_results_are_failures(self):
        section = self.section(None, status=77, text="SKIP: no CUDA device here")
        self.assertEqual(section["outcome"], "failed")
        self.assertIn("no CUDA device here", section["reason"])
        self.assertEqual(self.section(None, status=1, text="it broke")["outcome"], "failed")
        self.assertEqual(self.section(FOUND, status=1)["outcome"], "failed")

    def test_a_program_that_is_not_built_is_a_skip(self):
        with tempfile.TemporaryDirectory() as work:
            self.assertEqual(gpu_kernels.run(["/nonexistent/kernel-check"], work, {})["outcome"], "skipped")


if __name__ == "__main__":
    unittest.main()
