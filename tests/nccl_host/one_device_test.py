"""The emulated device's two faces in one process: the CUDA runtime of scripts/nccl-host and the emulated libcuda.so.1.

usage: one_device_test.py --driver LIBRARY
"""

import argparse
import ctypes
import os
import sys

import nccl_host

DEVICE, NOT_READY = 2, 600


def checked(result):
    if result:
        raise RuntimeError(f"a call of CUDA answered {result}")


class Attributes(ctypes.Structure):
    """cudaPointerAttributes of CUDA 12 and later, with what they may grow by."""
    _fields_ = [("type", ctypes.c_int), ("device", ctypes.c_int), ("device_pointer", ctypes.c_void_p),
                ("host_pointer", ctypes.c_void_p), ("reserved", ctypes.c_long * 16)]


def runtime_says(runtime, pointer):
    attributes = Attributes()
    checked(runtime.cudaPointerGetAttributes(ctypes.byref(attributes), pointer))
    return attributes.type


def driver_says(driver, pointer):
    kind = ctypes.c_uint()
    checked(driver.cuPointerGetAttribute(ctypes.byref(kind), 2, pointer))
    return kind.value


def faces(driver, runtime, driver_first):
    """What one face makes, the other knows: memory, a stream and an event."""
    context = ctypes.c_void_p()
    checked(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    checked(driver.cuCtxPushCurrent_v2(context))
    mine, theirs = ctypes.c_ulonglong(), ctypes.c_void_p()
    def by_driver():
        checked(driver.cuMemAlloc_v2(ctypes.byref(mine), ctypes.c_size_t(4096)))
    def by_runtime():
        checked(runtime.cudaMalloc(ctypes.byref(theirs), ctypes.c_size_t(4096)))
    for make in (by_driver, by_runtime) if driver_first else (by_runtime, by_driver):
        make()
    for pointer in (ctypes.c_void_p(mine.value), theirs):
        if runtime_says(runtime, pointer) != DEVICE or driver_says(driver, pointer) != DEVICE:
            return f"{pointer.value:#x} is not both faces' device memory"
    # A word by the driver on a stream of the runtime, behind an event of the driver.
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    checked(runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
    checked(driver.cuEventCreate(ctypes.byref(event), 2))
    checked(driver.cuMemsetD32Async(ctypes.c_ulonglong(theirs.value), 0x1234, ctypes.c_size_t(1024), stream))
    checked(driver.cuEventRecord(event, stream))
    checked(runtime.cudaEventSynchronize(event))
    words = (ctypes.c_uint * 1024)()
    checked(runtime.cudaMemcpyAsync(words, theirs, ctypes.c_size_t(4096), 2, stream))
    checked(runtime.cudaStreamSynchronize(stream))
    return "" if all(word == 0x1234 for word in words) else "the runtime's copy is not what the driver wrote"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--runtime", help="libnccl.so.2, in a process of this program's own")
    parser.add_argument("--order", choices=("driver", "runtime"), help="the face that allocates first")
    args = parser.parse_args()
    if args.order:
        problem = faces(ctypes.CDLL(args.driver), ctypes.CDLL(args.runtime), args.order == "driver")
        print(problem or "one device")
        return 1 if problem else 0
    status = nccl_host.made_ready("")
    if status:
        return status
    failed = 0
    for order in ("driver", "runtime"):  # each in a process of its own: a process has one device
        done = nccl_host.run([sys.executable, "-B", __file__, "--driver", args.driver, "--runtime", nccl_host.Ready.library,
                              "--order", order], os.environ)
        print(f"{order} first: {done.stdout.strip()}{done.stderr.strip()}")
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
