#!/usr/bin/env python3
"""Real NCCL over our plugin on one GPU: ranks as processes, results checked bit for bit, evidence kept.

Writes results.json, results.md and details.tar.gz (the ranks' logs, results and traces) into --out; docs/gpu-check.md
explains them.
Exit status: 0 all passed, 1 something failed, 2 wrong usage, 77 no NVIDIA GPU here.
"""

import argparse
import dataclasses
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

import gpu_gdr
import gpu_kernels
import gpu_report
import gpu_speed
import gpu_trainer

SKIP = gpu_report.SKIP
PLUGIN_NAME = "CLUSTAR"
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT_S = 500       # all cases together; the promise is "under 9 minutes"
CASE_LIMIT_S = 110  # one case
# Why the emulated device does not run them, and what does.
TORCH_NOT_EMULATED = "PyTorch's CUDA build needs NVIDIA's libraries and kernels; torch.ddp and torch.example run it over gloo and clustar"
GDR_NOT_EMULATED = "dma-bufs, copy engines and flushes are a GPU's; gdr_cuda_test runs the module over a driver that answers by fixtures"
NOT_EMULATED = ("nccl-check has CUDA's runtime and kernels for GPUs linked in; NCCL's host code runs the same collectives on the "
                "emulated device in the tests nccl_host.matrix, collnet and identity")



@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    description: str
    environment: dict
    ranks: int = 2
    logged: bool = False     # through the logging shim
    must_fail: bool = False
    profiled: bool = False   # the plugin is NCCL's profiler and tuner, too
    trace: str = ""          # what gpu_trace judges of the shim's rows; "" = nothing
    min_bytes: int = 8
    max_bytes: int = 64 << 20
    arguments: tuple = ()    # more for nccl-check
    gdr: bool = False        # NCCL must hand GPU memory to the plugin
    loss: float = None       # training steps: the fraction that may be missing; None = no such case
    torch: str = ""          # PyTorch trains instead of nccl-check: "exact" or "lossy"
    collnet: str = ""        # all-reduces go by the plugin's collective network, from "host" or "gpu" memory


RING_SIMPLE = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
TWO_CHANNELS = {**RING_SIMPLE, "NCCL_MIN_NCHANNELS": "2"}
DEFAULTS = {"NCCL_PROTO": "^LL128"}
STAGED = {**RING_SIMPLE, "CLUSTAR_GDR": "staged", "NCCL_NET_GDR_LEVEL": "SYS"}
# NCCL says with TUNING by which algorithm each collective went.
COLLNET = {"NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": "Ring;allreduce:CollNetChain", "NCCL_PROTO": "Simple",
           "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,TUNING"}
FEW = ("--iterations", "2")
LOSING = {**TWO_CHANNELS, "CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_INJECT_FAULTS": "loss=0.02", "CLUSTAR_LOSS_WARMUP": "0"}
TRAINING = {"profiled": True, "max_bytes": 4 << 20, "arguments": ("--train", "20")}
CASES = [
    Case("ring-simple", "our plugin, ring and Simple only", RING_SIMPLE),
    Case("defaults", "our plugin, NCCL's own choice of algorithm and protocol but LL128", DEFAULTS),
    Case("ring-simple-logged", "the same as ring-simple through the logging shim", RING_SIMPLE, logged=True),
    Case("defaults-logged", "the same as defaults through the logging shim", DEFAULTS, logged=True),
    Case("profiled-2", "each send's collective, phase and bytes against the ring's formula, 2 ranks", TWO_CHANNELS,
         logged=True, profiled=True, trace="ring", arguments=FEW),
    Case("profiled-3", "the same with 3 ranks", TWO_CHANNELS, ranks=3, logged=True, profiled=True, trace="ring",
         arguments=FEW),
    Case("profiled-defaults", "NCCL's own choice, from which our tuner takes LL128", {}, logged=True, profiled=True,
         trace="defaults", arguments=FEW),
    Case("split", "communicators made by ncclCommSplit, with own and with shared resources", TWO_CHANNELS, ranks=3,
         logged=True, profiled=True, trace="split", min_bytes=4096, max_bytes=2 << 20, arguments=(*FEW, "--split", "1")),
    Case("graph", "an all-reduce and a reduce-scatter in a CUDA graph, replayed 5 times with other inputs", TWO_CHANNELS,
         logged=True, profiled=True, trace="graph", min_bytes=4096, max_bytes=16 << 20, arguments=("--graph", "5")),
    Case("one-connection", "CUDA_DEVICE_MAX_CONNECTIONS=1: kernels of all streams queue behind each other",
         {**TWO_CHANNELS, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}, logged=True, profiled=True, trace="ring",
         max_bytes=16 << 20, arguments=FEW),
    Case("loss-off-is-exact", "mlt with every collective opted in to loss, on a network that loses nothing",
         {**TWO_CHANNELS, "CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_LOSS_RULES": "p=0.01", "CLUSTAR_LOSS_WARMUP": "0"},
         profiled=True, max_bytes=16 << 20, arguments=FEW),
    Case("train-lossy-2", "20 training steps while the network loses 2 %, of which 1 % may stay missing, 2 ranks",
         {**LOSING, "CLUSTAR_LOSS_RULES": "func=allreduce,p=0.01"}, loss=0.01, **TRAINING),
    Case("train-lossy-3", "the same with 3 ranks", {**LOSING, "CLUSTAR_LOSS_RULES": "func=allreduce,p=0.01"}, ranks=3,
         loss=0.01, **TRAINING),
    Case("train-exact", "the same with p = 0: every sum is exact",
         {**LOSING, "CLUSTAR_LOSS_RULES": "func=allreduce,p=0"}, ranks=3, loss=0.0, **TRAINING),
    Case("staged", "the same as ring-simple, but NCCL hands over GPU memory, which is staged through host memory", STAGED,
         gdr=True),
    Case("staged-flush", "the same as staged, with a flush before the GPU is told of data",
         {**STAGED, "NCCL_NET_FORCE_FLUSH": "1"}, gdr=True),
    Case("collnet", "all-reduces by ParaExpress, as NCCL's collective network", COLLNET, ranks=3, max_bytes=16 << 20,
         arguments=FEW, collnet="host"),
    Case("collnet-gpu", "the same from GPU memory, which is copied to host memory and back",
         {**COLLNET, "CLUSTAR_GDR": "staged", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_GDR_READ": "1"}, ranks=3,
         max_bytes=16 << 20, arguments=FEW, collnet="gpu"),
    Case("socket", "NCCL's own Socket transport, for comparison",
         {**RING_SIMPLE, "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}),
    Case("torch-socket", "PyTorch's DDP and FSDP over NCCL's own Socket, for comparison",
         {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}, torch="exact"),
    Case("torch", "PyTorch's DDP and FSDP over our plugin, with nothing but the environment set", {}, torch="exact"),
    Case("torch-mlt", "the same over mlt", {"CLUSTAR_TRANSPORT": "mlt"}, torch="exact"),
    Case("torch-lossy", "the same over mlt while the network loses 2 %, of which 1 % may stay missing",
         {**LOSING, "CLUSTAR_LOSS_RULES": "func=allreduce,p=0.01;func=reducescatter,p=0.01"}, profiled=True, torch="lossy"),
    Case("no-silent-fallback", "the plugin's file is missing: NCCL must fail, not take another network",
         {**RING_SIMPLE, "NCCL_NET_PLUGIN": "/nonexistent/libnccl-net-clustar.so"}, must_fail=True, max_bytes=8),
]


def gpu_present():
    return any(re.fullmatch(r"nvidia\d+", name) for name in os.listdir("/dev")) or bool(nvidia_smi("name"))


def nvidia_smi(field):
    if not shutil.which("nvidia-smi"):
        return ""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"], capture_output=True,
                              text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def library_folders():
    """Where libnccl.so.2 may be, best first: what the user set, Python's packages, the toolkit, the system."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    probe = "import importlib.util as u; s = u.find_spec('nvidia'); print('\\n'.join(s.submodule_search_locations or []) if s else '')"
    for python in dict.fromkeys((sys.executable, shutil.which("python3") or sys.executable)):
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True)
        for package in done.stdout.split():
            folders += [os.path.join(package, name, "lib") for name in ("nccl", "cu13", "cuda_runtime", "cublas", "cudnn")]
    return folders + ["/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64"]


def find_library(name, folders):
    for folder in folders:
        if os.path.exists(os.path.join(folder, name)):
            return os.path.realpath(os.path.join(folder, name))
    return ""


def machine():
    cpu = ""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
        match = re.search(r"model name\s*: (.*)", stream.read())
        cpu = match[1] if match else "unknown"
    return {"gpu": nvidia_smi("name"), "driver": nvidia_smi("driver_version"), "gpu_memory": nvidia_smi("memory.total"),
            "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release()}


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as stream:
        match = re.search(r"project\(clustar VERSION ([\d.]+)", stream.read())
    return match[1] if match else "unknown"


def rank_environment(rank, case, plugin, shim, csv, libraries):
    """NCCL's and our settings of the caller do not leak in: every run is the one that the report describes."""
    ours = ("NCCL_", "CLUSTAR_", "NETLOG_", "CUDA_DEVICE_MAX_CONNECTIONS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environment.update({
        "LD_LIBRARY_PATH": ":".join(libraries),
        # Another host per rank: they may then share the GPU, and only the network can join them.
        "NCCL_HOSTID": f"clustar-gpu-check-{rank}", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MNNVL_ENABLE": "0",
        "NCCL_SOCKET_IFNAME": "lo", "CLUSTAR_SOCKET_IFNAME": "lo", "NCCL_MAX_NCHANNELS": "2",
        "NCCL_NET_PLUGIN": shim if case.logged else plugin, "NCCL_NET": PLUGIN_NAME,
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
    })
    if case.logged:
        environment.update({"NETLOG_PLUGIN": plugin, "NETLOG_FILE": csv})
    if case.profiled:
        # The same path as the net plugin's: one library, one state (NCCL looks for others when these are not set).
        environment.update({"NCCL_PROFILER_PLUGIN": plugin, "NCCL_TUNER_PLUGIN": plugin})
    environment.update(case.environment)
    return environment


def stop(processes):
    """Ends the ranks, each the leader of its own process group; nothing else."""
    for signal_number, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 3)):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal_number)
        end = time.monotonic() + patience
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.05)


def run_ranks(program, case, paths, work, limit, max_bytes):
    """Runs one case; returns (exit statuses, None where it had to be stopped; seconds)."""
    name = case.name
    # Training steps need messages of which some may be lost, however small the other cases' are.
    largest = case.max_bytes if case.loss is not None else min(case.max_bytes, max_bytes)
    processes, logs = [], []
    start = time.monotonic()
    try:
        for rank in range(case.ranks):
            log = open(os.path.join(work, f"{name}.rank{rank}.log"), "wb")
            logs.append(log)
            csv = os.path.join(work, f"{name}.rank{rank}.csv")
            command = [*program, "--rank", str(rank), "--size", str(case.ranks), "--idfile", os.path.join(work, f"{name}.id"),
                       "--min", str(min(case.min_bytes, largest)), "--max", str(largest),
                       "--deadline", str(max(int(limit) - 5, 1)),
                       "--json", os.path.join(work, f"{name}.rank{rank}.json"), *case.arguments]
            environment = rank_environment(rank, case, paths["plugin"], paths["shim"], csv, paths["libraries"])
            processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                              stderr=subprocess.STDOUT, start_new_session=True))
        # When one rank fails, the other only waits for it: a short grace, then it is stopped.
        end = start + limit
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            if any(process.poll() not in (None, 0) for process in processes):
                end = min(end, time.monotonic() + 10)
                break
            time.sleep(0.1)
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.1)
        return [process.poll() for process in processes], time.monotonic() - start
    finally:
        stop(processes)
        for log in logs:
            log.close()


def run_case(case, program, paths, work, limit, max_bytes, earlier):
    statuses, seconds = run_ranks(paths["torch"] if case.torch else program, case, paths, work, limit, max_bytes)
    result = {"name": case.name, "description": case.description, "environment": case.environment, "ranks": case.ranks,
              "statuses": statuses, "seconds": round(seconds, 1)}
    result.update(gpu_report.read_case(work, case, earlier))
    network = "Socket" if case.environment.get("NCCL_NET") == "Socket" else PLUGIN_NAME
    result["outcome"], result["reason"] = gpu_report.judge(result, case, network)
    return result


def run_gdr(options, document, paths, work):
    print("gdr: what the CUDA module does with GPU memory ...", flush=True)
    ours = ("NCCL_", "CLUSTAR_", "CUDA_DEVICE_MAX_CONNECTIONS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    if options.emulated:
        section = {"outcome": "skipped", "reason": GDR_NOT_EMULATED}
    elif options.limit < 10:
        section = {"outcome": "skipped", "reason": "no time left"}
    else:
        section = gpu_gdr.run(paths["gdr"], work, environment, min(gpu_gdr.LIMIT_S, options.limit), options.max)
    document["gdr"] = section
    document["results"][section["outcome"]] += 1
    print(f"  {section['outcome']}: {section['reason']}", flush=True)
    gpu_report.write(document, options.out)


def nccl_on_the_emulated_device():
    """(the library that has NCCL's host code on it, why there is none)"""
    done = subprocess.run([os.path.join(ROOT, "scripts", "nccl-host")], capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout.strip(), ""
    return "", (done.stderr.strip().splitlines() or ["scripts/nccl-host failed"])[-1]


def emulated_driver(build):
    return os.path.join(build, "tests", "gdr", "emulated_libcuda", "libcuda.so.1")


def run_kernels(options, document, paths, work, deadline):
    print("kernels: ours, against float64 and beside a copy ...", flush=True)
    left = deadline - time.monotonic()
    if left < 10:
        section = {"outcome": "skipped", "reason": "no time left"}
    else:
        driver = emulated_driver(os.path.abspath(options.build)) if options.emulated else ""
        section = gpu_kernels.run(paths["kernels"], work, dict(os.environ), min(gpu_kernels.LIMIT_S, left), driver)
    document["kernels"] = section
    document["results"][section["outcome"]] += 1
    print(f"  {section['outcome']}: {section['reason']}", flush=True)
    gpu_report.write(document, options.out)


def run_trainer(options, document, paths, work, deadline):
    print("trainer: clustar train --device cuda, beside the processor and by NCCL ...", flush=True)
    ours = ("NCCL_", "CLUSTAR_", "CUDA_DEVICE_MAX_CONNECTIONS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environment.update({"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_SOCKET_IFNAME": "lo", "CLUSTAR_SOCKET_IFNAME": "lo"})
    if not options.emulated:
        environment["LD_LIBRARY_PATH"] = ":".join(paths["libraries"])
    nccl, why_not = "", ""
    if deadline - time.monotonic() >= 10:
        nccl, why_not = (nccl_on_the_emulated_device() if options.emulated else
                         (paths["nccl"], "" if paths["nccl"] else "libnccl.so.2 was not found"))
    left = deadline - time.monotonic()  # NCCL's host code may have been compiled
    if left < 10:
        section = {"outcome": "skipped", "reason": "no time left"}
    else:
        driver = emulated_driver(os.path.abspath(options.build))
        place = gpu_trainer.Place(paths["clustar"], environment, driver if options.emulated else "", nccl, why_not)
        section = gpu_trainer.run(place, work, min(gpu_trainer.LIMIT_S, left))
    document["trainer"] = section
    document["results"][section["outcome"]] += 1
    print(f"  {section['outcome']}: {section['reason']}", flush=True)
    gpu_report.write(document, options.out)


def run_cases(options, document, program, paths, work, deadline):
    results = document["results"]
    if options.gdr:
        run_gdr(options, document, paths, work)
    if options.kernels:
        run_kernels(options, document, paths, work, deadline)
    if options.trainer:
        run_trainer(options, document, paths, work, deadline)
    for case in options.cases:
        left = deadline - time.monotonic()
        print(f"{case.name}: {case.description} ...", flush=True)
        if options.emulated:
            outcome = {"name": case.name, "description": case.description, "outcome": "skipped",
                       "reason": TORCH_NOT_EMULATED if case.torch else NOT_EMULATED}
        elif left < 10:
            outcome = {"name": case.name, "description": case.description, "outcome": "skipped", "reason": "no time left"}
        else:
            outcome = run_case(case, program, paths, work, min(CASE_LIMIT_S, left - 5), options.max, results["cases"])
        results["cases"].append(outcome)
        results[outcome["outcome"]] += 1
        print(f"  {outcome['outcome']}: {outcome['reason']}", flush=True)
        # After every case: a run that is cut short leaves what it had.
        gpu_report.write(document, options.out)


def run_speed(options, document, program, paths, work, deadline):
    print(f"speed: {options.speed} rounds of {len(gpu_speed.ARMS)} arms in turns ...", flush=True)

    def run_arm(name, environment):
        case = Case(name, "", environment)
        return run_case(case, program, paths, work, min(CASE_LIMIT_S, max(deadline - time.monotonic(), 10)), options.max, ())

    section = gpu_speed.run(options.speed, run_arm, work, lambda: deadline - time.monotonic())
    document["speed"] = section
    document["results"][section["outcome"]] += 1
    print(f"  {section['outcome']}: {section['reason']}", flush=True)
    gpu_report.write(document, options.out)


def missing_binaries(paths, options):
    """What the chosen cases need; `gdr` beside others is skipped where gdr-check is not built."""
    names = {"program": "nccl-check", "plugin": "libnccl-net-clustar.so", "shim": "libnccl-net-clustar-log.so"}
    if not options.cases and not options.speed:
        names = {"gdr_check": "gdr-check", "module": "libclustar-cuda.so"} if options.gdr else {}
        if options.kernels and not os.path.isfile(paths["kernels"][0]):
            return [f"kernel-check ({paths['kernels'][0]})"]
        if options.trainer and not os.path.isfile(paths["clustar"]):
            return [f"clustar ({paths['clustar']})"]
    return [f"{names[key]} ({paths[key]})" for key in names if not os.path.isfile(paths[key])]


def missing_emulation(build):
    """What --emulated needs of the build."""
    wanted = {"clustar": os.path.join(build, "bin", "clustar"),
              "kernel-check": os.path.join(build, "bin", "kernel-check"), "the emulated driver": emulated_driver(build)}
    return [f"{name} ({path})" for name, path in wanted.items() if not os.path.isfile(path)]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__.split("\n\n")[0],
                                     epilog="Exit status: 0 passed, 1 failed, 2 wrong usage, 77 nothing could run here.")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="build folder with bin/ and lib/")
    parser.add_argument("--out", default=os.environ.get("OUT") or os.path.join(ROOT, "build", "gpu-check"),
                        help="where results go (default $OUT, otherwise build/gpu-check)")
    parser.add_argument("--emulated", action="store_true",
                        help="against the emulated device of the tests (docs/cuda.md), without a GPU: what it can run, and of "
                             "each other case why not; its times mean nothing")
    names = ["gdr", "kernels", "trainer"] + [case.name for case in CASES]
    parser.add_argument("--only", help="names of cases, separated by commas: " + " ".join(names))
    parser.add_argument("--max", type=int, default=64 << 20, metavar="BYTES",
                        help="largest message but of training steps (default 64 MiB)")
    parser.add_argument("--speed", type=int, default=0, metavar="ROUNDS",
                        help="then measure NCCL over each transport in turns, 1 to 20 rounds (default 0: not; needs MPS)")
    parser.add_argument("--limit", type=int, default=LIMIT_S, metavar="S", help=f"seconds for all (default {LIMIT_S})")
    options = parser.parse_args(arguments)
    if options.emulated and options.speed:
        parser.error("--speed: the emulated device's times mean nothing; allowed without --emulated")
    if not 0 <= options.speed <= 20:
        parser.error(f"--speed: {options.speed} rounds; 0 to 20 are allowed")
    options.cases, options.gdr, options.kernels, options.trainer = CASES, True, True, True
    if options.only:
        wanted = options.only.split(",")
        unknown = sorted(set(wanted) - set(names))
        if unknown:
            parser.error(f"--only: unknown case {', '.join(unknown)}; known: {', '.join(names)}")
        options.gdr = "gdr" in wanted
        options.kernels = "kernels" in wanted
        options.trainer = "trainer" in wanted
        options.cases = [case for case in CASES if case.name in wanted]
    return options


def main(arguments=None, has_gpu=gpu_present, program=None, gdr_program=None, torch_program=None):
    options = parse(arguments)
    if not options.emulated and not has_gpu():
        print("SKIP: no NVIDIA GPU here; this check needs one, with its driver and NCCL (docs/gpu-check.md)")
        return SKIP
    build = os.path.abspath(options.build)
    paths = {"program": os.path.join(build, "bin", "nccl-check"),
             "plugin": os.path.join(build, "lib", "libnccl-net-clustar.so"),
             "shim": os.path.join(build, "lib", "libnccl-net-clustar-log.so"),
             "gdr_check": os.path.join(build, "bin", "gdr-check"), "module": os.path.join(build, "lib", "libclustar-cuda.so"),
             "kernels": [os.path.join(build, "bin", "kernel-check")],
             "clustar": os.path.join(build, "bin", "clustar"),
             "gdr": gdr_program or [os.path.join(build, "bin", "gdr-check")],
             # The python that has PyTorch is the first on PATH, which need not be the one that runs this.
             "torch": torch_program or [shutil.which("python3") or sys.executable, "-B", os.path.join(HERE, "torch_train.py")]}
    missing = missing_emulation(build) if options.emulated else missing_binaries(paths, options)
    if missing:
        print(f"gpu-check: not built: {', '.join(missing)}", file=sys.stderr)
        print("Build here, or elsewhere and bring build/release along: cmake --preset release && cmake --build --preset "
              "release\n(nccl-check is built where CUDA's toolkit and nccl.h are found, gdr-check where cuda.h and libcuda's stub are.)", file=sys.stderr)
        return 1
    folders = library_folders()
    nccl = find_library("libnccl.so.2", folders)
    paths["nccl"] = nccl
    if not options.emulated and not nccl and program is None and (options.cases or options.speed):
        print("gpu-check: libnccl.so.2 not found in LD_LIBRARY_PATH, Python's nvidia packages, /usr/local/cuda or the "
              "system.\nSet LD_LIBRARY_PATH to its folder, or: pip install nvidia-nccl-cu13", file=sys.stderr)
        return 1
    paths["libraries"] = [os.path.dirname(nccl)] + [folder for folder in folders if os.path.isdir(folder)]
    try:
        os.makedirs(options.out, exist_ok=True)
    except OSError as error:
        print(f"gpu-check: --out {options.out}: {error.strerror}; name a folder that can be made", file=sys.stderr)
        return 2

    document = {"command": "gpu-check", "version": version(), "machine": machine(), "nccl_library": nccl,
                "emulated": options.emulated,
                "results": {"passed": 0, "failed": 0, "skipped": 0, "cases": []}}
    work = tempfile.mkdtemp(prefix="clustar-gpu-check-")
    deadline = time.monotonic() + options.limit
    try:
        run_cases(options, document, program or [paths["program"]], paths, work, deadline)
        if options.speed:
            run_speed(options, document, program or [paths["program"]], paths, work, deadline)
    finally:
        with tarfile.open(os.path.join(options.out, "details.tar.gz"), "w:gz") as archive:
            archive.add(work, arcname="details")
        shutil.rmtree(work, ignore_errors=True)
    results = document["results"]
    print(f"\nresults.json, results.md and details.tar.gz are in {options.out}")
    print(f"{results['passed']} passed, {results['failed']} failed, {results['skipped']} skipped")
    if options.emulated and results["failed"] == 0 and results["passed"] == 0:
        print("SKIP: none of the chosen cases could run")
        return SKIP
    return 0 if results["failed"] == 0 and results["passed"] > 0 else 1


if __name__ == "__main__":
    # A stop from outside must still end the ranks: run_ranks does so on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
