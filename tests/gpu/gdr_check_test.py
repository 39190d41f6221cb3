#!/usr/bin/env python3
"""gdr-check over a stand-in for the CUDA driver: that the program works, not what a GPU does.

Usage: gdr_check_test.py GDR-CHECK FOLDER-OF-LIBCUDA FOLDER-OF-FIXTURES
"""

import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import gpu_gdr

PROGRAM, LIBCUDA, FIXTURES = sys.argv[1:4]


class GdrCheck(unittest.TestCase):
    def run_check(self, fixture, *arguments):
        environment = {**os.environ, "LD_LIBRARY_PATH": LIBCUDA,
                       "CLUSTAR_FAKE_CUDA_DRIVER": os.path.join(FIXTURES, fixture + ".txt")}
        with tempfile.TemporaryDirectory(prefix="clustar-gdr-check-") as out:
            # The stand-in's GPU is in no machine.
            os.makedirs(os.path.join(out, "pci", "0000:1b:00.0"))
            with mock.patch.object(gpu_gdr, "PCI_DEVICES", os.path.join(out, "pci")):
                return gpu_gdr.run([PROGRAM, "--rounds", "2", *arguments], out, environment, most=600000)

    def kinds(self, section):
        return {row["kind"]: row for row in section["found"]["memory"]}

    def test_open_modules(self):
        section = self.run_check("open-modules")
        self.assertEqual(section["outcome"], "passed", section["reason"])
        self.assertIn("flush by the host; 16 rows of staging, all bytes right", section["reason"])
        kinds = self.kinds(section)
        self.assertEqual(len(kinds), 6)
        plain = kinds["cuMemAlloc (cudaMalloc)"]
        self.assertEqual((plain["place"], plain["legacy"], plain["before_address"]), ("device", "yes", 0))
        self.assertEqual([export["exported"] for export in plain["exports"]], [True, True])
        self.assertEqual((plain["exports"][0]["offset"], plain["exports"][0]["size"]), (904, (4 << 20) - 2 * 4096))
        self.assertEqual(plain["sync_memops"], "set")
        self.assertEqual(kinds["cuMemMap, GPUDirect capable"]["gpu_direct"], "yes")
        self.assertIn("managed memory", kinds["cuMemAllocManaged"]["exports"][0]["why"])
        self.assertIn("host memory", kinds["cuMemHostAlloc"]["exports"][1]["why"])
        text = "\n".join(gpu_gdr.lines(section))
        self.assertIn("| cuMemMap | device | no | no | 4186112 B, address at 904, through PCIe |", text)
        self.assertIn("to_host ended while a kernel waited", text)
        self.assertEqual([row["copy"] for row in section["found"]["behind_a_kernel_with_one_connection"]],
                         ["to_device", "to_host"])
        self.assertEqual([row["beside"] for row in section["found"]["beside_others"]],
                         ["cuStreamSynchronize", "cuCtxSynchronize", "cuMemFreeHost", "a capture in global mode"])
        self.assertEqual(section["found"]["beside_others"][3]["capture"], "CUDA_SUCCESS")
        self.assertIn("| GPU to host | 262144 | one cuMemcpy |", text)

    def test_a_refusal_is_an_answer(self):
        section = self.run_check("closed-modules")
        self.assertEqual(section["outcome"], "passed", section["reason"])
        self.assertIn("dma-bufs of no kind of memory", section["reason"])
        refused = self.kinds(section)["cuMemAlloc (cudaMalloc)"]["exports"][0]
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED; the driver exports no dma-bufs", refused["why"])
        self.assertIn("Flush to the owner", "\n".join(gpu_gdr.lines(section)))
        mig = self.run_check("mig")
        self.assertIn("Flush: device 0 offers no flush", "\n".join(gpu_gdr.lines(mig)))

    def test_no_gpu_is_a_skip_with_its_reason(self):
        section = self.run_check("no-device")
        self.assertEqual((section["outcome"], section["reason"]),
                         ("skipped", "SKIP: no CUDA device here: cuInit: CUDA_ERROR_NO_DEVICE"))

    def test_a_device_that_is_not_there_fails(self):
        section = self.run_check("open-modules", "--device", "7")
        self.assertEqual(section["outcome"], "failed")
        self.assertIn("cuDeviceGet: CUDA_ERROR_INVALID_DEVICE", section["reason"])

    def test_wrong_usage(self):
        for arguments in (("--rounds",), ("--rounds", "0"), ("--max", "1"), ("--max", "x"), ("--nothing", "1")):
            done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("usage: gdr-check", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
