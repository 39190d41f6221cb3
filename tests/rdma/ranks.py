"""Two ranks of `clustar train`, one at each end of the cable, each in an environment of its own."""

import dataclasses
import json
import os
import signal
import subprocess
import time

import cable

BATCH = 4
ROOT = "10.9.0.1:5000"


@dataclasses.dataclass(frozen=True)
class Over:
    """What carries the gradients."""
    environment: dict
    roce: bool = False  # RoCE packets; otherwise IP's
    connected: bool = False  # by queue pairs that end with what the device gives up
    lossy: bool = False  # can lose what loss rules allow
    dscp: frozenset = frozenset()  # of what carries payload, when `marked` is in the environment
    marked: dict = dataclasses.field(default_factory=dict)
    fixed: dict = dataclasses.field(default_factory=dict)  # environment that gives all packets DSCP 26
    left_open: bool = False  # librdmacm keeps the devices open until the process ends


FIXED = {"CLUSTAR_IB_TC": "104"}
MLT_PAYLOAD = frozenset((8, 24, 32, 40, 48))  # class selectors 1, 3 to 6; see mlt/core/classes.h
TRANSPORTS = {
    "tcp": Over({"CLUSTAR_TRANSPORT": "tcp"}),
    "mlt": Over({"CLUSTAR_TRANSPORT": "mlt"}, lossy=True, dscp=MLT_PAYLOAD),
    # A NIC's time to repeat what was lost is 67 ms here, not 4.3 s: a step at 1 % loss waits for several.
    "verbs": Over({"CLUSTAR_TRANSPORT": "verbs", "NCCL_IB_TIMEOUT": "14"}, roce=True, connected=True,
                  dscp=frozenset((26,)), marked={"NCCL_IB_TC": "106"}),
    "mlt-ud": Over({"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_IO": "verbs_ud"}, roce=True, lossy=True, dscp=MLT_PAYLOAD,
                   fixed=FIXED),
    "mlt-uc": Over({"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_IO": "verbs_uc"}, roce=True, lossy=True, dscp=MLT_PAYLOAD,
                   fixed=FIXED),
    # libfabric's, which set no DSCP. GID 1 is RoCE v2 on IPv4.
    "ofi": Over({"CLUSTAR_TRANSPORT": "ofi", "CLUSTAR_OFI_PROVIDER": "verbs;ofi_rxm"}, roce=True, connected=True,
                left_open=True),
    "mlt-ofi": Over({"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_IO": "ofi", "CLUSTAR_OFI_PROVIDER": "verbs",
                     "FI_VERBS_GID_IDX": "1", "FI_VERBS_RX_SIZE": "4096"}, roce=True, lossy=True),
}


def environment(over, end):
    """Of a program at `end`. oneDNN's code for an old processor is the fastest where a processor is emulated."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CLUSTAR_", "NCCL_"))}
    return {**clean, "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "1", "NCCL_SOCKET_IFNAME": f"=v{end}",
            "NCCL_IB_HCA": f"=rxe_{end}:1", **over.environment}


@dataclasses.dataclass
class Outcome:
    status: list  # of each rank; None: it was still running when the time was over
    seconds: float
    report: dict  # `results` of rank 0's JSON; empty without one
    text: list  # what each rank wrote
    counts: dict  # see cable.counters(), over the run

    def last_words(self):
        return " | ".join(" ".join(text.split())[-300:] or "(nothing)" for text in self.text)


class Training:
    """`with Training(...) as training:` starts it and ends with both ranks gone, whatever happened."""

    def __init__(self, program, folder, over, model, steps, epochs=1, options=(), extra=None, ends=cable.ENDS):
        self.program, self.folder, self.over, self.ends = program, folder, over, ends
        self.extra = extra or {}
        # A fifth of the examples is held out.
        self.options = ["--model", model, "--size", "2", "--root", ROOT, "--batch", str(BATCH), "--epochs", str(epochs),
                        "--examples", str(max(5, steps * BATCH * 5 // 4)), "--no-progress", *options]
        self.ranks = []

    def __enter__(self):
        self.before = cable.counters()
        self.began = time.monotonic()
        self.json = self.folder / "train.json"
        self.json.unlink(missing_ok=True)
        for rank, end in enumerate(self.ends):
            command = [self.program, "train", "--rank", str(rank), *self.options]
            command += ["--json", str(self.json)] if rank == 0 else []
            with open(self.folder / f"rank{rank}.txt", "w") as output:
                self.ranks.append(subprocess.Popen(command, env={**environment(self.over, end), **self.extra},
                                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT))
        return self

    def __exit__(self, *unused):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()

    def running(self):
        return all(rank.poll() is None for rank in self.ranks)

    def kill(self, rank):
        self.ranks[rank].send_signal(signal.SIGKILL)

    def wait(self, limit):
        """The Outcome, at the latest `limit` seconds from now."""
        until = time.monotonic() + limit
        status = []
        for rank in self.ranks:
            try:
                status.append(rank.wait(max(0, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                status.append(None)
        seconds = time.monotonic() - self.began
        counts = cable.difference(cable.counters(), self.before)
        report = json.loads(self.json.read_text())["results"] if self.json.exists() else {}
        text = [(self.folder / f"rank{rank}.txt").read_text(errors="replace") for rank in range(len(self.ranks))]
        return Outcome(status, seconds, report, text, counts)


def complaints(over, outcome, steps, may_miss=0.0):
    """What is wrong with a run that should have ended well: a list of sentences, empty when nothing is."""
    if None in outcome.status:
        return [f"still running after {outcome.seconds:.0f} s: {outcome.last_words()}"]
    if outcome.status != [0, 0]:
        return [f"exit status {outcome.status}: {outcome.last_words()}"]
    report = outcome.report
    wrong = [] if report["replicas_identical"] is True else ["the replicas differ, or were not compared"]
    if report["steps"] != steps:
        wrong.append(f"{report['steps']} steps instead of {steps}")
    if report["missing_bytes"] > may_miss * report["eligible_bytes"]:
        wrong.append(f"{report['missing_bytes']} bytes missing of {report['eligible_bytes']} eligible")
    return wrong + off_the_cable(over, outcome)


def off_the_cable(over, outcome):
    """Says what of the payload did not cross the cable from each end."""
    counts, report = outcome.counts, outcome.report
    payload = report["bytes_sent"] / report["ranks"] - report["missing_bytes"]
    wrong = []
    for end in cable.ENDS:
        crossed = counts[f"v{end}", "tx_bytes"]
        if crossed < payload:
            wrong.append(f"v{end} sent {crossed} bytes, less than the {payload:.0f} of payload: it took another way")
        packets = counts[f"rxe_{end}", "sent_pkts"]
        if over.roce and packets < payload / 4096:
            wrong.append(f"rxe_{end} sent {packets} RoCE packets, too few for {payload:.0f} bytes: not over verbs")
    if counts["lo", "tx_bytes"] > payload / 4 + 200_000:
        wrong.append(f"{counts['lo', 'tx_bytes']} bytes went over lo")
    return wrong
