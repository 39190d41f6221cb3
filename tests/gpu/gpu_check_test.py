#!/usr/bin/env python3
"""scripts/gpu-check without a GPU: its cases, bounds, verdicts and files, over a stand-in for nccl-check."""

import contextlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

import gpu_check
import gpu_gdr
import gpu_report
import gpu_speed

FAKE = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_nccl_check.py")]
FAKE_TORCH = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_torch_train.py")]
FAKE_GDR = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_gdr_check.py")]


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="clustar-gpu-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("bin/nccl-check", "lib/libnccl-net-clustar.so", "lib/libnccl-net-clustar-log.so", "bin/gdr-check",
                     "lib/libclustar-cuda.so"):
            path = os.path.join(self.folder, "build", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w", encoding="utf-8").close()
        self.out = os.path.join(self.folder, "out")
        os.makedirs(os.path.join(self.folder, "pci", "0000:1b:00.0"))
        pci = mock.patch.object(gpu_gdr, "PCI_DEVICES", os.path.join(self.folder, "pci"))
        pci.start()
        self.addCleanup(pci.stop)

    def run_check(self, mode, *arguments, has_gpu=True):
        output = io.StringIO()
        with mock.patch.dict(os.environ, {"FAKE_MODE": mode, "NCCL_ALGO": "Tree"}), contextlib.redirect_stdout(output), \
                contextlib.redirect_stderr(output):
            status = gpu_check.main(["--build", os.path.join(self.folder, "build"), "--out", self.out, *arguments],
                                    has_gpu=lambda: has_gpu, program=FAKE, gdr_program=FAKE_GDR, torch_program=FAKE_TORCH)
        return status, output.getvalue()

    def results(self):
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as stream:
            return json.load(stream)["results"]

    def outcomes(self):
        return {case["name"]: case["outcome"] for case in self.results()["cases"]}

    def test_no_gpu_is_a_skip_with_its_reason(self):
        status, output = self.run_check("ok", has_gpu=False)
        self.assertEqual(status, 77)
        self.assertIn("SKIP: no NVIDIA GPU here", output)

    def test_all_well(self):
        status, output = self.run_check("ok")
        self.assertEqual(status, 0, output)
        self.assertEqual(self.outcomes(), {case.name: "passed" for case in gpu_check.CASES})
        case = self.results()["cases"][2]
        self.assertEqual((case["networks"], case["plugin_api"], case["channels"]), (["CLUSTAR"], "v11", ["NET/CLUSTAR"]))
        # 2 types, 5 runs each, 64 MiB; two ranks send 1 + 1/2 + 1/2 of it, in transfers of 1 MiB.
        self.assertEqual(case["ring_formula_bytes"], 2 * 5 * 2 * (64 << 20))
        self.assertEqual(case["shim"][1]["sent_bytes"], case["ring_formula_bytes"])
        self.assertEqual(case["shim"][1]["by_size"][0], {"op": "AllReduce", "algo": "Ring", "proto": "Simple", "tag": "1",
                                                         "bytes": 1 << 20, "count": 2 * 5 * 64})
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            text = stream.read()
        self.assertIn("**25 passed, 0 failed, 2 skipped**", text)
        self.assertIn("| all_reduce | 64 MiB | yes | 100 (1.000) |", text)
        self.assertIn("Using network CLUSTAR", text)
        with tarfile.open(os.path.join(self.out, "details.tar.gz")) as archive:
            self.assertIn("details/ring-simple-logged.rank1.csv", archive.getnames())
        self.assertIn("- profiler CLUSTAR (v5), tuner CLUSTAR (v5)", text)
        self.assertIn("of 4 communicators", text)
        self.assertIn("collectives replayed on rank 0 have", text)
        self.assertIn("## What was lost: train-lossy-3", text)
        self.assertIn("20 steps, replicas bit-identical after each; ", output)
        self.assertIn("20 steps, replicas bit-identical, and those of ddp and fsdp equal to those over NCCL's Socket; ddp 1.0000 to 0.5000", output)
        self.assertIn("14 B missing of 1400 B eligible (1.00 %)", output)
        self.assertIn("| torch-lossy | fsdp | 33.6 MB | 1.0000, 0.5000 | lossy | 30.0 |", text)

    def test_all_reduces_must_go_by_the_collective_network(self):
        for mode, case, why in (
                ("no_collnet", "collnet", "rank 0 ended with status 1: CollNet is not offered: eth0 reaches GPU memory; see"),
                ("collnet_absent", "collnet", "rank 0: NCCL connected no collective network: its log does not say why"),
                ("collnet_ring", "collnet", "rank 0: NCCL's all-reduces went by {'RING': 1, 'COLLNET_CHAIN': 1}, not COLLNET_CHAIN"),
                ("collnet_half", "collnet-gpu", "the ends in host memory are ['send'], in GPU memory ['receive']; wanted: both in gpu"),
                ("host_memory", "collnet-gpu", "rank 1: the ends in host memory are ['receive', 'send'], in GPU memory []")):
            status, output = self.run_check(mode, "--only", f"{case},ring-simple")
            self.assertEqual(status, 1, output)
            self.assertEqual(self.outcomes(), {"ring-simple": "passed", case: "failed"})
            self.assertIn(why, output)
        status, output = self.run_check("ok", "--only", "collnet,collnet-gpu")
        self.assertEqual(status, 0, output)
        self.assertIn("results bit-identical over CLUSTAR, 2 all-reduces of each rank by CollNet", output)

    def test_other_parameters_than_over_socket_fail(self):
        status, output = self.run_check("torch_other", "--only", "torch-socket,torch")
        self.assertEqual(status, 1)
        self.assertIn("ddp: parameters other, over NCCL's Socket exact", output)

    def test_without_pytorch_its_cases_are_skipped(self):
        status, output = self.run_check("no_torch", "--only", "ring-simple,torch")
        self.assertEqual(status, 0, output)
        self.assertEqual(self.outcomes(), {"ring-simple": "passed", "torch": "skipped"})

    def control(self, body):
        path = os.path.join(self.folder, "mps-control")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("#!/bin/sh\n" + body)
        os.chmod(path, 0o755)
        return mock.patch.object(gpu_speed, "control", lambda: path)

    def test_speed_takes_the_arms_in_turns_and_ends_what_it_started(self):
        calls = os.path.join(self.folder, "calls")
        with self.control(f'[ "$1" = -d ] && echo start $CUDA_MPS_PIPE_DIRECTORY >>{calls} || cat >>{calls}\n'):
            status, output = self.run_check("ok", "--only", "no-silent-fallback", "--speed", "2")
        self.assertEqual(status, 0, output)
        with open(calls, encoding="utf-8") as stream:
            started, ended = stream.read().split("\n", 1)
        self.assertRegex(started, "^start .*/mps$")
        self.assertIn("quit", ended)
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            self.assertIn("| all_reduce | 67108864 | 100 us, 1.00 GB/s | 100 us, 1.00 GB/s (1.00, 1.00 to 1.00) |", stream.read())

    def test_speed_without_mps_is_a_skip_with_its_reason(self):
        for patch, why in ((mock.patch.object(gpu_speed, "control", lambda: ""), "nvidia-cuda-mps-control is not here"),
                           (self.control("echo no driver >&2; exit 1\n"), "nvidia-cuda-mps-control -d: no driver")):
            with patch:
                status, output = self.run_check("ok", "--only", "no-silent-fallback", "--speed", "1")
            self.assertEqual(status, 0, output)
            self.assertIn(why, output)

    def test_a_speed_arm_that_fails_is_a_failure(self):
        with self.control("[ $1 = -d ] || cat >/dev/null\n"):
            status, output = self.run_check("wrong", "--only", "no-silent-fallback", "--speed", "1")
        self.assertEqual(status, 1)
        self.assertIn("socket, round 0: 2 of 6 results are wrong", output)
        with self.assertRaises(SystemExit):
            self.run_check("ok", "--speed", "99")

    def test_gpu_memory_is_reported(self):
        status, output = self.run_check("ok", "--only", "gdr,ring-simple,staged,staged-flush")
        self.assertEqual(status, 0, output)
        self.assertIn("dma-bufs of cuMemAlloc (cudaMalloc); flush by the host; 1 rows of staging, all bytes right", output)
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            text = stream.read()
        self.assertIn("| cuMemAlloc (cudaMalloc) | device | yes | yes | cuMemGetHandleForAddressRange: "
                      "CUDA_ERROR_NOT_SUPPORTED | 4186112 B, address at 904, as the driver likes | set |", text)
        self.assertIn("| cuMemAllocAsync (cudaMallocAsync) | not to be had: CUDA_ERROR_NOT_SUPPORTED |", text)
        self.assertIn("Flush to the owner: 1.50 us (1.00 to 2.00)", text)
        self.assertIn("- to_host ended while a kernel waited for the host (20 us)", text)
        self.assertIn("- to_host ended while a kernel waited for the host, CUDA_DEVICE_MAX_CONNECTIONS=1 (20 us)", text)
        self.assertIn("- a copy **did not end** beside a kernel that waited, another thread inside cuCtxSynchronize", text)
        self.assertIn("- a copy ended beside a capture in global mode (CUDA_SUCCESS) (30 us)", text)
        self.assertIn("| GPU to host | 67108864 | one cuMemcpy | 10.0 | 9.0 to 11.0 | 6.55 | 0 of 9 |", text)
        # The stand-in is as fast staged as not, and slower with a flush.
        self.assertIn("Faster than ring-simple in 0 of 6 rows. Kept as a choice only if it wins: it does not.", text)
        self.assertIn("| all_reduce | float32 | 67108864 | 0.80 |", text)
        with tarfile.open(os.path.join(self.out, "details.tar.gz")) as archive:
            self.assertIn("details/gdr.json", archive.getnames())

    def test_what_goes_wrong_with_gpu_memory_fails(self):
        for mode, why in (("gdr_wrong", "one cuMemcpy, GPU to host, 67108864 B: wrong bytes in 1 of 9 rounds"),
                          ("gdr_waits", "to_host did not end while a kernel waited"),
                          ("gdr_short", "a dma-buf of 4096 B with the address at 904, said to have 4186112 B"),
                          ("gdr_place", "said to be managed memory of device 0, is device 0's"),
                          ("gdr_device", "said to be device memory of device 1, is device 0's"),
                          ("gdr_base", "an allocation of 4194304 B that begins 4096 B before its address"),
                          ("gdr_size", "an allocation of 4096 B that begins 0 B before its address, of 4194304 B"),
                          ("gdr_pci", "PCI address '0000:ff:00.0', which is not in "),
                          ("gdr_no_export", "not exported, though the device says that it supports dma-bufs"),
                          ("gdr_unknown", "cuPointerGetAttribute: CUDA_ERROR_INVALID_CONTEXT"),
                          ("gdr_none", "not to be had: CUDA_ERROR_OUT_OF_MEMORY"),
                          ("gdr_capture", "the copy ended, the capture ended with CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
                          ("gdr_no_driver", "failed: SKIP: no CUDA device here: libcuda.so.1 has no cuStreamQuery"),
                          ("gdr_crash", "ended with status 1 and wrote no results: gdr-check: cuModuleLoadData")):
            shutil.rmtree(self.out, ignore_errors=True)
            status, output = self.run_check(mode, "--only", "gdr")
            self.assertEqual(status, 1, mode)
            self.assertIn(why, output)
        with mock.patch.object(gpu_gdr, "LIMIT_S", 1):
            status, output = self.run_check("gdr_hang", "--only", "gdr")
        self.assertEqual(status, 1)
        self.assertIn("gdr-check did not end within 1 s", output)

    def test_the_largest_message_and_the_time_are_handed_on(self):
        self.run_check("ok", "--only", "gdr", "--max", "1048576")
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            self.assertIn("| GPU to host | 1048576 | one cuMemcpy |", stream.read())
        self.run_check("ok", "--only", "gdr", "--max", "4096")
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            self.assertIn("| GPU to host | 65536 | one cuMemcpy |", stream.read())
        start = time.monotonic()
        with mock.patch.object(gpu_gdr, "LIMIT_S", 2):
            status, output = self.run_check("gdr_slow_second", "--only", "gdr")
        self.assertLess(time.monotonic() - start, 6, "the second run gets what the first left")
        self.assertEqual(status, 0, output)

    def test_gdr_alone_needs_no_nccl(self):
        for name in ("bin/nccl-check", "lib/libnccl-net-clustar.so", "lib/libnccl-net-clustar-log.so"):
            os.remove(os.path.join(self.folder, "build", name))
        status, output = self.run_check("ok", "--only", "gdr")
        self.assertEqual(status, 0, output)
        os.remove(os.path.join(self.folder, "build", "lib/libclustar-cuda.so"))
        status, output = self.run_check("ok", "--only", "gdr")
        self.assertEqual(status, 1)
        self.assertIn("not built: libclustar-cuda.so", output)

    def test_one_connection_is_an_answer_whatever_it_is(self):
        status, output = self.run_check("gdr_stuck", "--only", "gdr")
        self.assertEqual(status, 0, output)
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            self.assertIn("- no answer on copies while a kernel waits, CUDA_DEVICE_MAX_CONNECTIONS=1", stream.read())

    def test_a_gdr_check_that_cannot_run_is_a_skip(self):
        status, output = self.run_check("gdr_skip", "--only", "gdr,ring-simple")
        self.assertEqual(status, 0, output)
        self.assertIn("skipped: SKIP: no CUDA device here: cuInit: CUDA_ERROR_NO_DEVICE", output)
        absent = gpu_gdr.run(["/nonexistent/gdr-check"], self.folder, {})
        self.assertEqual(absent, {"outcome": "skipped", "reason": "gdr-check is not built"})
        no_program = gpu_gdr.run([self.folder], self.folder, {})
        self.assertEqual(no_program, {"outcome": "failed", "reason": "gdr-check does not start: Permission denied"})

    def test_a_staged_case_on_host_memory_fails(self):
        status, output = self.run_check("host_memory", "--only", "staged,ring-simple")
        self.assertEqual(status, 1)
        self.assertEqual(self.outcomes(), {"ring-simple": "passed", "staged": "failed"})
        self.assertIn("NCCL handed over GPU memory (GDRDMA in its log) on 1 of 2 ranks", output)

    def test_wrong_bits_fail(self):
        status, output = self.run_check("wrong", "--only", "ring-simple")
        self.assertEqual(status, 1)
        self.assertIn("2 of 6 results are wrong", output)
        self.assertIn("rank 1: element 3 is 0x00000000", output)

    def test_another_network_fails(self):
        status, output = self.run_check("other_network", "--only", "ring-simple")
        self.assertEqual(status, 1)
        self.assertIn("wanted CLUSTAR", output)

    def test_a_silent_fallback_fails(self):
        status, output = self.run_check("silent_fallback", "--only", "no-silent-fallback")
        self.assertEqual(status, 1)
        self.assertIn("NCCL went on without the plugin, over Socket", output)

    def test_a_trace_without_sends_fails(self):
        status, output = self.run_check("no_trace", "--only", "ring-simple,ring-simple-logged")
        self.assertEqual(status, 1)
        self.assertEqual(self.outcomes(), {"ring-simple": "passed", "ring-simple-logged": "failed"})
        self.assertIn("the logging shim saw no isend", output)

    def test_a_profiler_that_is_not_loaded_fails(self):
        status, output = self.run_check("no_profiler", "--only", "profiled-2,loss-off-is-exact,ring-simple")
        self.assertEqual(status, 1)
        self.assertEqual(self.outcomes(), {"ring-simple": "passed", "profiled-2": "failed", "loss-off-is-exact": "failed"})
        self.assertIn("rank 1: NCCL's log names no plugin among its profilers", output)

    def test_a_deviation_from_the_ring_fails_with_its_row(self):
        status, output = self.run_check("gap", "--only", "profiled-3", "--max", "65536")
        self.assertEqual(status, 1)
        self.assertIn("transfer is not 3 of 8: rank 1, line ", output)
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            self.assertIn("- deviation: transfer is not 3 of 8", stream.read())

    def test_replicas_that_differ_fail_with_the_step(self):
        status, output = self.run_check("diverge", "--only", "train-lossy-2,train-exact", "--max", "65536")
        self.assertEqual(status, 1)
        self.assertIn("replicas differ after step 4: digest of the parameters is", output)
        with open(os.path.join(self.out, "results.md"), encoding="utf-8") as stream:
            self.assertIn("- deviation: replicas differ after step 4", stream.read())

    def test_ll128_despite_the_tuner_fails(self):
        status, output = self.run_check("ll128", "--only", "profiled-defaults", "--max", "65536")
        self.assertEqual(status, 1)
        self.assertIn("LL128, which the tuner must forbid: rank 0, line 2", output)

    def test_a_rank_that_crashes_is_named(self):
        status, output = self.run_check("crash", "--only", "ring-simple")
        self.assertEqual(status, 1)
        self.assertIn("rank 0 ended with status -6", output)

    def test_a_rank_that_hangs_is_stopped_in_time(self):
        start = time.monotonic()
        with mock.patch.object(gpu_check, "CASE_LIMIT_S", 2):
            status, output = self.run_check("hang", "--only", "ring-simple")
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(status, 1)
        self.assertIn("rank 1 did not end within the limit", output)

    def test_no_time_left_skips(self):
        status, output = self.run_check("ok", "--limit", "5")
        self.assertEqual(status, 1, "nothing passed")
        self.assertEqual(set(self.outcomes().values()), {"skipped"})
        self.assertIn("no time left", output)

    def test_missing_binaries_say_how_to_build(self):
        os.remove(os.path.join(self.folder, "build/lib/libnccl-net-clustar.so"))
        status, output = self.run_check("ok")
        self.assertEqual(status, 1)
        self.assertIn("libnccl-net-clustar.so", output)
        self.assertIn("cmake --preset release", output)

    def test_settings_of_the_caller_do_not_leak(self):
        with mock.patch.dict(os.environ, {"NCCL_ALGO": "Tree", "CLUSTAR_IO": "udp", "NETLOG_FILE": "x"}):
            plain = gpu_check.rank_environment(0, gpu_check.Case("a", "", {"NCCL_PROTO": "Simple"}), "p.so", "s.so", "f", ["l"])
            logged = gpu_check.rank_environment(1, gpu_check.Case("b", "", {}, logged=True, profiled=True), "p.so", "s.so", "f",
                                                ["l"])
        self.assertFalse({"NCCL_ALGO", "CLUSTAR_IO", "NETLOG_FILE"} & set(plain))
        self.assertEqual((plain["NCCL_NET_PLUGIN"], logged["NCCL_NET_PLUGIN"], logged["NETLOG_PLUGIN"]), ("p.so", "s.so", "p.so"))
        self.assertEqual((logged["NCCL_PROFILER_PLUGIN"], logged["NCCL_TUNER_PLUGIN"]), ("p.so", "p.so"))
        self.assertNotIn("NCCL_PROFILER_PLUGIN", plain)
        self.assertNotEqual(plain["NCCL_HOSTID"], logged["NCCL_HOSTID"])

    def test_log_lines_of_nccl(self):
        log = gpu_report.read_log(
            "a:1:2 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>\n"
            "a:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin CLUSTAR (v11)\n"
            "a:1:2 [0] NCCL INFO Using network CLUSTAR\n"
            "a:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/CLUSTAR/0\n"
            "a:1:2 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [receive] via NET/CLUSTAR/0\n")
        self.assertEqual((log["networks"], log["plugin_api"]), (["CLUSTAR"], "v11"))
        self.assertEqual(len(log["evidence"]), 3, "one line of each kind")
        self.assertEqual((log["profiler"], log["tuner"]), ("", ""))

    def test_log_lines_of_profiler_and_tuner(self):
        older = gpu_report.read_log("a:1:2 [0] NCCL INFO PROFILER/Plugin: loaded CLUSTAR\n"
                                    "a:1:2 [0] NCCL INFO TUNER/Plugin: Using tuner plugin CLUSTAR\n")
        newer = gpu_report.read_log("a:1:2 [0] NCCL INFO PROFILER/Plugin: Loaded CLUSTAR (v6)\n"
                                    "a:1:2 [0] NCCL INFO TUNER/Plugin: Using CLUSTAR (v6)\n")
        self.assertEqual((older["profiler"], older["tuner"]), ("CLUSTAR", "CLUSTAR"))
        self.assertEqual((newer["profiler"], newer["tuner"]), ("CLUSTAR (v6)", "CLUSTAR (v6)"))


if __name__ == "__main__":
    unittest.main()
