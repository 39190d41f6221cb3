#!/usr/bin/env python3
"""Who may include whom. ROOMS is the project's table; THIRD_PARTY says which room may see which outside header."""

import re

import tree

# Room (folder, or file without its extension) -> what it may include besides itself. The longest name that fits a
# path is its room. A name with an extension is that one file.
MEMORY = "gdr/memory.h"
REGISTRATIONS = "gdr/registration_cache.h"
# What every kind of packets and its users share: transport/io without its folders.
WAIST_2 = ["transport/io/" + name for name in ("packet_io", "packet_backend", "contained_backend", "control_network",
                                               "address_blob", "link_profile", "packet_ios", "reach")] + ["transport/net/endpoint.h"]
# A kind of packets lists the host's interfaces as its devices.
BACKEND = ["transport/base", "transport/net", "transport/io/peer_table", MEMORY] + WAIST_2
ABI = "nccl_plugin/abi"
RESULT = "transport/base/result.h"
SETTINGS = "nccl_plugin/settings"
GDR_SETTINGS = "gdr/settings"
ROOMS = {
    "transport/base": [],
    "transport/api": ["transport/base", MEMORY],
    "transport/message": ["transport/base", "transport/api", MEMORY],
    "transport/io": ["transport/base", "transport/net", MEMORY],
    "transport/io/decorators": ["transport/base", MEMORY] + WAIST_2,
    # A module's entry.
    "transport/io/decorators/module": ["transport/base", "transport/api", "transport/module",
                                       "transport/io/decorators"] + WAIST_2,
    "transport/io/udp": BACKEND,
    # Its datagrams are those of kernel UDP, and so are the addresses of its ends.
    "transport/io/dpdk": BACKEND + ["transport/io/udp/address.h", "transport/io/udp/frame.h"],
    "transport/io/dpdk/core": ["transport/base", MEMORY] + WAIST_2,
    # A module's entry.
    "transport/io/dpdk/module": ["transport/base", "transport/api", "transport/module", "transport/io/dpdk"] + WAIST_2,
    # The RC transport registers by its registrar and asks it which memory a NIC reaches.
    "transport/io/verbs": BACKEND + [REGISTRATIONS, GDR_SETTINGS, "gdr/core", "gdr/topology"],
    "transport/sim": ["transport/base", MEMORY] + WAIST_2,
    "transport/net": ["transport/base"],
    "transport/handshake": ["transport/base", "transport/api", "transport/net"],
    "transport/crypto": ["transport/base"],
    "transport/rendezvous": ["transport/base"],
    "transport/tcp": ["transport/base", "transport/api", "transport/message", "transport/net", "transport/handshake",
                      MEMORY],
    "transport/verbs": ["transport/base", "transport/api", "transport/message", "transport/io", "transport/net", "transport/handshake",
                        MEMORY, REGISTRATIONS, GDR_SETTINGS],
    # A transport over host memory becomes one over GPU memory.
    "transport/staged": ["transport/base", "transport/api", MEMORY, "gdr/device_copy.h", "gdr/core"],
    "transport/verbs/module": ["transport/base", "transport/api", "transport/io", "transport/verbs", "transport/module"],
    "transport/module": ["transport/base", "transport/api", "transport/module_build.h"],
    "transport/registry": ["transport", "libfabric_shim", "mlt/driver", "mlt/compare/settings", "gdr"],
    # All rooms' tables of settings, and what contradicts between them.
    "transport/transport_tables": ["transport", "libfabric_shim", "mlt/driver/settings", "mlt/compare/settings", GDR_SETTINGS],
    "libfabric_shim": ["transport/base", "transport/api", "transport/message", "transport/io", "transport/net",
                       "transport/handshake", "transport/tcp/core", MEMORY, GDR_SETTINGS],
    # A module's entry.
    "libfabric_shim/rdm/module": ["transport/base", "transport/api", "transport/io", "transport/module", "libfabric_shim"],
    # An external provider: libfabric's programs over our transports.
    "libfabric_shim/provider": ["transport/base", "transport/api", "transport/net", "transport/registry",
                                "transport/transport_tables", "transport/tcp/settings", "mlt/driver/settings", "nccl_plugin/settings", MEMORY],
    "libfabric_shim/provider/core": ["transport/base", "transport/net/endpoint.h"],
    "mlt/core": ["transport/base"],
    "mlt/fec": ["transport/base"],
    "mlt/driver": ["transport/base", "transport/api", "transport/message", "transport/net", "transport/handshake", "transport/crypto",
                   "mlt/core", "mlt/fec", MEMORY, GDR_SETTINGS] + WAIST_2,
    "mlt/compare": ["transport/base", "mlt/core"],
    # A module's entry.
    "mlt/compare/module": ["transport/base", "transport/api", "transport/module", "mlt/compare",
                           "mlt/driver/recovery_module.h"],
    "coflow/core": ["transport/base"],
    "coflow/registry": ["transport/base", "coflow/core"],
    "coflow/control/core": ["transport/base", "coflow/core"],
    # A thread with sockets of its own, in the user's process.
    "coflow/control": ["transport/base", "transport/net", "transport/crypto", "coflow/core"],
    # The daemon of `clustar coordinator`: never part of the plugin.
    "coflow/control/daemon": ["transport/base", "transport/crypto", "coflow/core", "coflow/control"],
    "coflow/enforce": ["transport/base", "transport/api", "coflow/core", "coflow/control"],
    "paraexpress/core": ["transport/base"],
    # What is compiled for one instruction set includes nothing whose code another file could share.
    "paraexpress/sums": [],
    "paraexpress/engine": ["transport/base", "transport/api", "paraexpress/core", "paraexpress/sums", MEMORY],
    # Engines in turn: ranks that join knock over TCP.
    "paraexpress/elastic": ["transport/base", "transport/api", "transport/rendezvous", "paraexpress/core",
                            "paraexpress/engine"],
    # All operations of a group of ranks: by the engine and by messages.
    "paraexpress/communicator": ["transport/base", "transport/api", "paraexpress/core", "paraexpress/engine", "paraexpress/sums", MEMORY],
    "paraexpress/communicator/core": ["transport/base", "paraexpress/core", "paraexpress/sums"],
    "paraexpress/tolerant": ["transport/base", "transport/api", "paraexpress/core", "paraexpress/engine", "paraexpress/sums"],
    "paraexpress/tolerant/core": ["transport/base", "paraexpress/core", "paraexpress/sums"],
    # The backend of torch.distributed: wires the communicator as api does the engine.
    "paraexpress/torch": ["transport/base", "transport/api", "transport/registry", "paraexpress"],
    # A library for users: wires the engine to the settings and transports as the plugin does.
    "paraexpress/api": ["transport/base", "transport/api", "transport/registry", "transport/rendezvous", "paraexpress",
                        "coflow/enforce", "nccl_plugin/settings"],
    "gdr": ["transport/base"],
    "gdr/core": ["transport/base", MEMORY],
    "gdr/cuda": ["transport/base", MEMORY, "gdr/device_copy.h", "gdr/core/machine.h"],
    "gdr/cuda/module": ["transport/base", "transport/api", "transport/module", "gdr/cuda"],
    "nccl_plugin": ["transport/base", "transport/api", "transport/registry", "transport/transport_tables", MEMORY, "gdr/device_copy.h", "coflow/control", "coflow/enforce",
                    "paraexpress/engine"],
    "nccl_plugin/abi": [],
    # These two drive any plugin and so must know nothing of ours beyond the ABI and how errors are reported.
    "bench/proxy": [ABI, RESULT, "transport/base/half.h", "transport/rendezvous"],
    # The public C API, which a user of any plugin may look for.
    "bench/proxy/loss_reports": ["bench/proxy", RESULT, "nccl_plugin/clustar.h"],
    "bench/conform": ["bench/proxy", "bench/report", ABI, RESULT],
    "bench/perf": ["bench/proxy", ABI, RESULT],
    # Knows interfaces and queues, not what runs over them.
    "bench/fabric": [RESULT, "transport/base/toml_scan.h"],
    # Says on what cores others were busy while it measured.
    "bench/fabric/selftest": ["bench/fabric", "bench/perf/other_cpu.h", RESULT],
    # What a network computes, and by what: knows neither data nor ranks.
    "bench/trainer/graph": ["transport/base", "bench/trainer/precision/precision"],
    # Kernels of its own for a GPU, launched by the driver alone.
    "bench/trainer/graph/cuda": ["transport/base", "bench/trainer/precision/precision", "bench/trainer/graph", "gdr/launch", "gdr/kernels"],
    # What a run needs to go on, on disk.
    "bench/trainer/checkpoint": ["bench/proxy/bootstrap.h", "bench/trainer", "transport/base"],
    # Examples and their batches: knows neither models nor ranks.
    "bench/trainer/data": ["transport/base", "bench/trainer/digest", "bench/trainer/random"],
    # Conducts trainers over fabrics. Of perf only the statistics, so that both tools mean the same by an interval.
    "bench/ab": ["bench/fabric", "bench/perf/statistics.h", "bench/proxy", "bench/report", "bench/trainer",
                 SETTINGS, "transport/base"],
    # Ranks that mpirun, torchrun or srun starts: knows the records of a trainer, not what is compared.
    "bench/ab/cluster": ["bench/trainer/record.h", "transport/base"],
    # Training in trouble: as bench/ab, and what the lossy suite knows of kernels, switches and machines.
    "bench/ab/suite": ["bench/ab", "bench/fabric", "bench/lossy", "bench/perf", "bench/proxy", "bench/report",
                       "bench/trainer", "transport/base"],
    # Several jobs at once: as bench/ab, and what plays a job's traffic.
    "bench/ab/jobs": ["bench/ab", "bench/coflow", "bench/fabric", "bench/perf/statistics.h", "bench/proxy", "bench/report",
                      "bench/trainer", "transport/base"],
    # The same training on more and more ranks: knows no fabric but its description and its proof.
    "bench/ab/scaling": ["bench/ab", "bench/fabric", "bench/perf/statistics.h", "bench/report", "bench/trainer",
                         "transport/base"],
    "bench": ["transport", "mlt", "coflow", "paraexpress", "gdr", "libfabric_shim", "nccl_plugin", "bench"],
    # What a toolchain includes before each file of a build for an older system.
    "packaging": [],
    "tests": ["transport", "mlt", "coflow", "paraexpress", "gdr", "libfabric_shim", "nccl_plugin", "bench", "packaging", "tests"],
}
# (file, included) pairs that the table does not allow; each with its reason.
EXCEPTIONS = {}

CORES = ("mlt/core", "coflow/core", "paraexpress/core", "paraexpress/communicator/core", "paraexpress/tolerant/core", "paraexpress/sums", "gdr/core", "libfabric_shim/provider/core", "transport/io/dpdk/core")
# Outside header -> rooms that may include it (a prefix covers what is below it).
SOCKETS = ("transport/net", "transport/rendezvous", "transport/tcp", "transport/io", "libfabric_shim/provider/address", "libfabric_shim/dgram", "coflow/control", "bench", "tests")
THIRD_PARTY = [
    (r"(sys/(socket|epoll|un|select|eventfd)|netinet/.*|arpa/.*|net/.*|netdb|ifaddrs|poll|linux/(sockios|errqueue|if.*))\.h",
     SOCKETS, "sockets"),
    (r"boost/asio.*", ("coflow/control/daemon", "tests"), "Boost.Asio"),
    (r"boost/.*", ("coflow/control/daemon", "tests"), "Boost"),
    (r"infiniband/.*", ("transport/verbs", "transport/io/verbs", "tests"), "verbs"),
    (r"rdma/(rdma|rsocket).*", ("transport/verbs", "transport/io/verbs", "tests"), "rdma-core"),
    (r"rdma/fi_.*|rdma/fabric\.h", ("libfabric_shim", "tests"), "libfabric"),
    (r"rte_.*", ("transport/io/dpdk", "bench/dpdk", "tests"), "DPDK"),
    (r"(cuda|cublas|cudnn|curand|nvml).*|gdrapi\.h", ("gdr", "bench/trainer", "tests/gpu", "tests/gdr/fake_libcuda", "tests/gdr/emulated_device", "tests/gdr/emulated_libraries", "tests/nccl_host/binding",
      "tests/nccl_host/perf", "tests/nccl_host/scenarios"), "CUDA"),
    (r"nccl.*\.h", ("bench/trainer", "tests/gpu", "tests/nccl_host/perf", "tests/nccl_host/scenarios"), "NCCL"),
    (r"CLI/.*", ("bench/cli",), "CLI11 (slow to compile: one .cc per command)"),
    (r"toml\.hpp|toml/.*", ("transport/base/config", "bench/fabric/topology_file", "bench/ab/jobs/jobs_file", "coflow/control/daemon/toml_files", "tests"), "toml11 (slow to compile: one .cc each)"),
    (r"nlohmann/.*", ("bench", "coflow/control/daemon/state_json", "tests"), "JSON"),
    (r"(oneapi/)?dnnl.*", ("bench/trainer/graph/onednn_convolution", "bench/trainer/graph/onednn_kernels",
      "bench/trainer/graph/onednn_math", "bench/trainer/graph/onednn_runtime"), "oneDNN"),
    (r"openssl/.*", ("transport/crypto/openssl_module",), "OpenSSL (the module only: the plugin loads without it)"),
    (r"isa-l/.*|isa-l\.h", ("mlt/fec/isal_module",), "ISA-L (the module only: the plugin loads without it)"),
    (r"bpf/.*|switch\.skel\.h", ("bench/fabric/switch",), "libbpf"),
    (r"steer\.skel\.h", ("transport/io/dpdk/steering",), "the steering program"),
    (r"(torch|ATen|c10|pybind11)/.*", ("paraexpress/torch",), "PyTorch (slow to compile, and never in the plugin)"),
    (r"(jpeglib|jerror)\.h", ("bench/trainer/data/jpeg", "tests"), "libjpeg"),
    (r"zlib\.h", ("bench/trainer/data/idx", "tests"), "zlib"),
    (r"(gtest|gmock)/.*", ("tests",), "GoogleTest"),
    (r"benchmark/.*", ("bench/micro",), "Google Benchmark"),
]
CORE_HEADERS = r"thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token|chrono|random|" \
               r"iostream|fstream|sstream|filesystem|cstdio|stdio\.h|cstdlib|stdlib\.h|ctime|time\.h|sys/.*|unistd\.h|" \
               r"fcntl\.h|pthread\.h|signal\.h|csignal|dlfcn\.h|spdlog/.*"
CLOCKS = re.compile(r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|__rdtsc|rdtsc)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def allowed(target, names):
    return any(target == name or target.startswith(name + "/") or target.startswith(name + ".") for name in names)


def check_include(path, room, kind, target, own_top_folders):
    """What is wrong with one #include; '' if nothing."""
    if target.split("/")[0] in own_top_folders and "/" in target:
        if (path, target) in EXCEPTIONS or allowed(target, [room] + ROOMS[room]):
            return ""
        return f"{room} may include {', '.join([room] + ROOMS[room])}; not {target}"
    if kind == '"' and "/" not in target:
        return f"'{target}': name it from the repository's root, as \"{path.rsplit('/', 1)[0]}/{target}\""
    for pattern, rooms, name in THIRD_PARTY:
        if re.fullmatch(pattern, target):
            if not any(path == allowed_room or path.startswith((allowed_room + "/", allowed_room + "."))
                       for allowed_room in rooms):
                return f"<{target}>: {name} is for {', '.join(rooms)} only"
            break
    if room in CORES and re.fullmatch(CORE_HEADERS, target):
        return f"<{target}>: a pure core has no thread, clock, log, file or environment; time and Rng are arguments"
    return ""


def check(root):
    paths = [path for path in tree.files(root) if path.endswith(tree.CXX)]
    own = {room.split("/")[0] for room in ROOMS}
    for path in paths:
        room = tree.room_of(path, ROOMS)
        if room is None:
            yield f"{path}:1: no rule for this folder; add it to ROOMS in tests/lint/include_rules.py"
            continue
        text = tree.read(root, path)
        for match in INCLUDE.finditer(text):
            problem = check_include(path, room, match[1], match[2], own)
            if problem:
                yield f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}: {problem}"
        if room in CORES:
            code = tree.code_only(text)
            for match in CLOCKS.finditer(code):
                yield f"{path}:{code.count(chr(10), 0, match.start()) + 1}: {match[0]}: `now` is an argument in a core"
    for path, target in EXCEPTIONS:
        if path not in paths or f'"{target}"' not in tree.read(root, path):
            yield f"tests/lint/include_rules.py:1: the exception {path} -> {target} is no longer needed; remove it"


if __name__ == "__main__":
    tree.run(check, __doc__)
