"""What a run of NCCL's host code over a net plugin says about the plugin, from its output and NCCL's log."""

import pathlib
import re
import signal

SOCKET = "socket"  # instead of a plugin's file: NCCL's own sockets

LOADED = re.compile(r"NET/Plugin: Loaded net plugin (.*) \(v(\d+)\)")
USED = re.compile(r"NCCL INFO Using network (.*)")
EDGE = re.compile(r"\[(?:send|receive)\] via NET/(.*)/(\d+)(\(\d+\))?((?:/GDRDMA)?)")
# NCCL names each place that an error passes, from the innermost on.
PASSED = re.compile(r"NCCL INFO (\S+\.cc):(\d+) -> (\d+)")
CALL = re.compile(r"->(init|devices|getProperties|listen|connect|accept|regMr|regMrDmaBuf|deregMr|isend|irecv|iflush|test|"
                  r"closeSend|closeRecv|closeListen|makeVDevice|finalize|setNetAttr)\(")
WARNING = re.compile(r"NCCL WARN (.*)")
CRASH = re.compile(r"rank (\d+) ended by signal (\d+)")
OWN = re.compile(r"^nccl-host-\w+: (.*?)(?: \(\))?$", re.MULTILINE)
TRIAL = re.compile(r"^\w+: trial \d+: (.*)$", re.MULTILINE)
DEAF = re.compile(r"^  rank (\d+): \d+ rounds, error 0 ", re.MULTILINE)
WRONG = re.compile(r"^ *(\d+) +\d+ +(\d+) +\w+ +\w+ +[\d.]+ +(\d+)$", re.MULTILINE)
FIRST = re.compile(r"first wrong: (.*)")
WRONG_IN_ALL = re.compile(r"(\d+) elements compared, ([1-9]\d*) wrong")
WHY_NOT = re.compile(r"NCCL (?:INFO|WARN) ((?:Failed to initialize NET plugin|External network plugin|NET/Plugin: ).*)")
LATE = "not done after --timeout"
RESULTS = ("ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError", "ncclInvalidArgument",
           "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress")
REMOTE_ERROR = 6
# Of these the errors of NCCL are meant.
DEATHS = ("scenario.kill", "scenario.abort", "scenario.abort_stopped")


class Seen:
    """A run's output and NCCL's logs, read."""

    def __init__(self, text, log, tree):
        self.text = text
        self.log = log
        self.tree = tree
        loaded = LOADED.findall(log)
        self.plugin = loaded[0][0] if loaded else None
        self.table = int(loaded[0][1]) if loaded else 0
        self.used = USED.findall(log)
        self.edges = EDGE.findall(log)

    def refused_call(self, remote_too=True):
        """A call of the plugin that failed: what it returned, and where NCCL made it. Rather one that failed by itself
        than one that heard of a peer's end (`remote_too`: or that)."""
        remote = ""
        for path, line, result in PASSED.findall(self.log):
            name = path.rpartition("/src/")[2]
            call = CALL.search(self._source(name, int(line)))
            said = f"{call[1]} returned {result_name(int(result))} (NCCL's {name}:{line})" if call else ""
            if said and int(result) != REMOTE_ERROR:
                return said
            remote = remote or said
        return remote if remote_too else ""

    def _source(self, name, number):
        file = self.tree / "src" / name
        lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
        return lines[number - 1] if number <= len(lines) else ""

    def warning(self):
        found = WARNING.search(self.log)
        return f"; NCCL's log: {' '.join(found[1].split())[:300]}" if found else ""

    def stage(self):
        """How far NCCL came."""
        if not self.used:
            return "before NCCL had chosen a network"
        if self.edges and "Connected all rings" not in self.log:
            return "while ranks connected (listen, connect, accept)"
        if "Init COMPLETE" not in self.log:
            return "while communicators were made"
        return "in transfers (isend, irecv, test)"


def result_name(number):
    return f"{RESULTS[number]} ({number})" if number < len(RESULTS) else f"error {number}"


def signal_name(number):
    """Of real-time signals only the first and the last have a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        between = signal.SIGRTMIN < number < signal.SIGRTMAX
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if between else f"signal {number}"


def wrong_network(seen, args):
    """Nothing, or: the bytes went another way than over the plugin."""
    own = args.plugin == SOCKET
    wanted = "Socket" if own else seen.plugin
    why = WHY_NOT.findall(seen.log)
    said = f": {why[-1][:300]}" if why and not own else ""
    if wanted is None:
        return f"NCCL did not load the plugin{said}" if seen.used or why else ""
    other = sorted({name for name in seen.used if name != wanted})
    if other:
        refusal = [line for line in why if line.startswith("Failed")]
        said = f": {refusal[0]}" if refusal else said
        calls = seen.refused_call()
        return (f"NCCL fell back to {' and '.join(other)} on {sum(name != wanted for name in seen.used)} of "
                f"{len(seen.used)} communicators, so the plugin was not used{said}{'; ' + calls if calls else ''}")
    edges = sorted({edge[0] for edge in seen.edges if edge[0] != wanted})
    return f"connections go over {' and '.join(edges)}, not over {wanted}" if edges else ""


def cause(seen, status, case):
    """Nothing, or why a run failed, the nearest to the plugin first."""
    crash = CRASH.findall(seen.text)
    if crash:
        rank, number = map(int, crash[0])
        return f"rank {rank} crashed with {signal_name(number)}, {seen.stage()}"
    wrong = wrong_bits(seen.text)
    late = status is None or LATE in seen.text
    # Who is ended for being late is a peer that ended to the others.
    refused = seen.refused_call(remote_too=not late)
    # Errors belong to a death: there what the scenario itself says comes first.
    if refused and case.name not in DEATHS and not (wrong and f"({REMOTE_ERROR})" in refused):
        return f"{refused}{seen.warning()}"
    if wrong:
        return wrong
    # What ranks say after that comes of their being ended.
    said = [line for line in TRIAL.findall(seen.text) or OWN.findall(seen.text.split(LATE)[0]) if line]
    deaf = DEAF.findall(seen.text)
    if late and said and deaf and case.name in DEATHS:
        return f"{said[0]}: no error in {case.limit} s on rank {', '.join(deaf)}{seen.warning()}"
    if late and not said:
        return f"stuck: not done in {case.limit} s, {seen.stage()}{seen.warning()}"
    if status == 0:
        return ""
    if said:
        return f"{said[0]}{'; ' + refused if refused else ''}{seen.warning()}"
    return f"ended with status {status}, {seen.stage()}{seen.warning()}"


def wrong_bits(text):
    rows = [(int(rank), int(count), int(wrong)) for rank, count, wrong in WRONG.findall(text) if int(wrong)]
    first = FIRST.search(text)
    if rows:
        return (f"wrong bits and no error: {rows[0][2]} of {rows[0][1]} elements on rank {rows[0][0]}"
                f"{f' (and on {len(rows) - 1} more ranks)' if rows[1:] else ''}{'; ' + first[1] if first else ''}")
    summed = WRONG_IN_ALL.search(text)
    return f"wrong bits and no error: {summed[2]} of {summed[1]} elements" if summed else ""


def compared(text):
    """Whether the run says that it compared results, and found none wrong."""
    return "# checked: 0 wrong" in text or re.search(r"\d+ elements compared, 0 wrong$", text, re.MULTILINE) or re.search(
        r"(\d+) of \1 trials of \d+ ranks well", text)


def verdict(seen, status, case, args):
    """(outcome, reason)"""
    wrong = wrong_network(seen, args) or cause(seen, status, case)
    if wrong:
        return "fail", wrong
    if not compared(seen.text):
        return "fail", "the run ended well but says nothing of a comparison of its results"
    if not seen.edges:
        return "fail", "the run ended well, but NCCL's log shows no connection over a network"
    direct = sum(bool(edge[3]) for edge in seen.edges)
    if args.emulated_gpu and not direct:
        return "skip", ("NCCL did not give the plugin GPU memory: its ptrSupport lacks NCCL_PTR_CUDA, or regMr refused it; "
                        "through host memory all was right")
    memory = f", {direct} of them of GPU memory" if args.emulated_gpu else ""
    return "pass", f"all bits right; {len(seen.edges)} ends of connections over {seen.used[0]}{memory}{times(seen.text)}"


def times(text):
    found = re.search(r"the latest error after (\d+) ms, the longest abort (\d+) ms", text)
    return f"; error after {found[1]} ms, abort {found[2]} ms" if found and found[2] != "0" else ""
