#!/usr/bin/env python3
"""Stands in for gdr-check where there is no GPU: same options, file and exit statuses; FAKE_MODE plays a failure."""

import json
import os
import sys
import time

EXPORT = {"pcie_wanted": False, "exported": True, "pcie": False, "why_not_pcie": "", "offset": 904, "size": 4186112,
          "end_of_fd": 4186112}
REFUSED = {"pcie_wanted": True, "exported": False, "why": "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED"}


def memory(kind, place, exports):
    return {"kind": kind, "allocated": True, "place": place, "device": 0, "pci_address": "0000:1b:00.0",
            "before_address": 0, "size": 4 << 20, "gpu_direct": "yes", "legacy": "yes", "exports": exports,
            "sync_memops": "set", "asked_bytes": 4 << 20}


def main():
    mode = os.environ.get("FAKE_MODE", "ok")
    if mode == "gdr_skip":
        print("SKIP: no CUDA device here: cuInit: CUDA_ERROR_NO_DEVICE")
        sys.exit(77)
    if mode == "gdr_no_driver":
        print("cuInit was not reached", file=sys.stderr)
        print("SKIP: no CUDA device here: libcuda.so.1 has no cuStreamQuery")
        sys.exit(77)
    if mode == "gdr_crash":
        sys.exit("gdr-check: cuModuleLoadData of our PTX: CUDA_ERROR_INVALID_PTX")
    if "--behind-only" in sys.argv and mode == "gdr_stuck":
        sys.exit("gdr-check: a copy of DeviceCopy did not end")
    if mode == "gdr_hang":
        time.sleep(600)
    if mode == "gdr_slow_second" and "--behind-only" in sys.argv:
        time.sleep(600)
    plain = {"gdr_place": {"place": "managed"}, "gdr_device": {"device": 1}, "gdr_base": {"before_address": 4096},
             "gdr_size": {"size": 4096}, "gdr_pci": {"pci_address": "0000:ff:00.0"}, "gdr_no_export": {"exports": [REFUSED]},
             "gdr_unknown": {"why": "cuPointerGetAttribute: CUDA_ERROR_INVALID_CONTEXT"},
             "gdr_none": {"allocated": False, "why": "CUDA_ERROR_OUT_OF_MEMORY"}}.get(mode, {})
    short = {**EXPORT, "end_of_fd": 4096} if mode == "gdr_short" else EXPORT
    staging = [{"direction": "GPU to host", "bytes": int(sys.argv[sys.argv.index("--max") + 1]) if "--max" in sys.argv else 65536, "way": "one cuMemcpy", "rounds": 9,
                "wrong_rounds": 1 if mode == "gdr_wrong" else 0, "q1_us": 9.0, "median_us": 10.0, "q3_us": 11.0,
                "gbytes_per_s": 6.55}]
    found = {"gpu": "stand-in", "device": 0, "cuda_version": 13000, "attributes": {"dma_buf": 1},
             "memory": [{**memory("cuMemAlloc (cudaMalloc)", "device", [REFUSED, short]), **plain},
                        {"kind": "cuMemAllocAsync (cudaMallocAsync)", "allocated": False, "why": "CUDA_ERROR_NOT_SUPPORTED"}],
             "flush": {"flushes": True, "scope": "owner", "calls": 1000, "q1_us": 1.0, "median_us": 1.5, "q3_us": 2.0},
             "behind_a_kernel": [{"copy": "to_host", "ended_while_the_kernel_waited": mode != "gdr_waits", "us": 20.0}],
             "beside_others": [{"beside": "cuCtxSynchronize", "ended": False, "us": 1000000.0},
                               {"beside": "a capture in global mode", "ended": True, "us": 30.0,
                                "capture": "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" if mode == "gdr_capture"
                                else "CUDA_SUCCESS"}],
             "staging": staging}
    with open(sys.argv[sys.argv.index("--json") + 1], "w", encoding="utf-8") as stream:
        json.dump(found, stream)
    sys.exit(1 if mode in ("gdr_wrong", "gdr_waits") else 0)


main()
