"""Speed of real NCCL over our transports beside its own Socket: arms in turns, ranks that share the GPU at once.

Two ranks of two processes take turns on a GPU, 2 ms each, which hides any network. NVIDIA's Multi-Process Service (MPS)
runs their kernels together, so this starts a control daemon of its own for as long as it measures.
"""

import contextlib
import os
import shutil
import subprocess

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("/usr/local/nvidia/bin", "/usr/local/cuda/bin")
# NCCL's own choice of algorithm, protocol and channels, as a user has it. `socket` first: the others are set against it.
WHOLE = {"NCCL_MAX_NCHANNELS": "32"}
ARM_S = 40  # with fewer seconds left no arm begins
ARMS = {
    "socket": {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"},
    # As many sockets as NCCL allows on one host's connection within its own advice for fast Ethernet.
    "socket-8": {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "2"},
    "tcp": {"CLUSTAR_TRANSPORT": "tcp"},
    "mlt": {"CLUSTAR_TRANSPORT": "mlt"},
    "mlt-thread": {"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_ENGINE": "thread"},
}


def control():
    found = shutil.which(CONTROL) or next((path for path in (os.path.join(folder, CONTROL) for folder in FOLDERS)
                                           if os.access(path, os.X_OK)), "")
    return found


@contextlib.contextmanager
def service(work):
    """Yields the environment of MPS's clients, or None and why there is none."""
    program = control()
    if not program:
        yield None, f"{CONTROL} is not here"
        return
    folder = os.path.join(work, "mps")
    os.makedirs(folder, exist_ok=True)
    clients = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    environment = {**os.environ, **clients}
    try:
        started = subprocess.run([program, "-d"], env=environment, capture_output=True, text=True, timeout=30)
        why = "" if started.returncode == 0 else (started.stderr or started.stdout).strip() or str(started.returncode)
    except subprocess.TimeoutExpired:
        why = "it did not start within 30 s"
    if why:
        yield None, f"{CONTROL} -d: {why}"
        return
    try:
        yield clients, ""
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([program], input="quit -t 5\n", env=environment, capture_output=True, text=True, timeout=30)


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def run(rounds, run_arm, work, seconds_left):
    """`run_arm(name, environment)` runs one arm once and returns its case. Returns the section of the report."""
    section = {"rounds": 0, "arms": list(ARMS), "rows": [], "failures": [], "outcome": "skipped", "reason": ""}
    samples = {}
    with service(work) as (clients, why):
        if clients is None:
            section["reason"] = f"no MPS: {why}; ranks that take turns on the GPU hide the network"
            return section
        for turn in range(rounds):
            for arm, environment in ARMS.items():
                if seconds_left() < ARM_S:
                    break
                case = run_arm(f"speed-{arm}-{turn}", {**WHOLE, **environment, **clients})
                if case["outcome"] != "passed":
                    section["failures"].append(f"{arm}, round {turn}: {case['reason']}")
                    continue
                for row in case["collectives"]:
                    if row["type"] == "float32":
                        samples.setdefault((row["collective"], row["bytes"]), {}).setdefault(arm, {})[turn] = row
            else:
                section["rounds"] = turn + 1
                continue
            break
    for (collective, size), arms in samples.items():
        out = {"collective": collective, "bytes": size, "arms": {}}
        for arm, turns in arms.items():
            times = [row["time_us"] for row in turns.values()]
            # In the same round: the machine is then as busy.
            ratios = [arms["socket"][turn]["time_us"] / row["time_us"] for turn, row in turns.items()
                      if turn in arms.get("socket", {})]
            out["arms"][arm] = {"time_us": [median(times), min(times), max(times)],
                                "busbw_gbytes_per_s": median([row["busbw_gbytes_per_s"] for row in turns.values()]),
                                "faster_than_socket": [median(ratios), min(ratios), max(ratios)] if ratios else None}
        section["rows"].append(out)
    section["outcome"] = "failed" if section["failures"] else "passed" if section["rows"] else "skipped"
    section["reason"] = "; ".join(section["failures"]) or \
        (f"{section['rounds']} whole rounds of {len(ARMS)} arms in turns" if section["rows"] else "no time left")
    return section


def lines(section):
    if not section:
        return []
    out = ["", "## Speed: NCCL over each transport, ranks at once on the GPU (MPS)", "",
           f"**{section['outcome']}**: {section['reason']}. float32; us: the median of the rounds; GB/s: bus bandwidth; in "
           "brackets how many times as fast as `socket`, median and range over the rounds."]
    if not section["rows"]:
        return out
    arms = section["arms"]
    out += ["", "| collective | bytes | " + " | ".join(arms) + " |", "|---|---|" + "---|" * len(arms)]
    for row in section["rows"]:
        cells = []
        for arm in arms:
            one = row["arms"].get(arm)
            if not one:
                cells.append("-")
                continue
            text = f"{one['time_us'][0]:.0f} us, {one['busbw_gbytes_per_s']:.2f} GB/s"
            if arm != "socket" and one["faster_than_socket"]:
                text += " ({:.2f}, {:.2f} to {:.2f})".format(*one["faster_than_socket"])
            cells.append(text)
        out.append(f"| {row['collective']} | {row['bytes']} | " + " | ".join(cells) + " |")
    return out
