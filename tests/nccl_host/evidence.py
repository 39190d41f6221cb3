"""What the logs of NCCL and of the plugin say about which way the bytes of a run went."""

import csv
import re

CUDA = "2"  # NCCL_PTR_CUDA, as regMr's type
TRAFFIC = re.compile(r"\b(tcp|mlt): \S+ sent (\d+) messages / (\d+) bytes, received (\d+) / (\d+)(.*)")
AGAIN = re.compile(r"\d+ packets sent, (\d+) of them again")
CHOSEN = re.compile(r"(\w+): (\d+) Bytes -> Algo (\S+) proto (\S+) channel")
STAGED = re.compile(r"/ (\d+) bytes from GPU memory, \d+ requests / (\d+) bytes to it")
EDGE = re.compile(r"\[(?:send|receive)\] via NET/(\S+)")


class Evidence:
    """Sums over all ranks of a run, from the output that has NCCL_DEBUG=INFO with INIT, NET and TUNING."""

    def __init__(self, text):
        traffic = TRAFFIC.findall(text)
        self.transports = {line[0] for line in traffic}
        self.reports = len(traffic)
        self.sent_messages, self.sent_bytes, self.received_messages, self.received_bytes = (
            sum(int(line[i]) for line in traffic) for i in range(1, 5))
        self.sent_again = sum(int(count) for line in traffic for count in AGAIN.findall(line[5]))
        self.missing_bytes = self._sum(traffic, "bytes missing")
        self.eligible_bytes = self._sum(traffic, "eligible")
        staged = [found for line in traffic for found in STAGED.findall(line[5])]
        self.from_gpu, self.to_gpu = (sum(int(found[i]) for found in staged) for i in (0, 1))
        self.chosen = {(int(size), algorithm, protocol) for _, size, algorithm, protocol in CHOSEN.findall(text)}
        self.edges = EDGE.findall(text)
        self.sealed = text.count("mlt: every packet is sealed")

    @staticmethod
    def _sum(traffic, meaning):
        return sum(int(count) for line in traffic for count in re.findall(rf", (\d+) {meaning}\b", line[5]))


def wrong_path(seen, case, least_bytes):
    """Nothing, or in what the way of the bytes is not the case's."""
    if case.ranks == 1:
        return "bytes went over the network on one rank" if seen.sent_bytes else ""
    transport = case.transport.split("-")[0]
    if seen.transports != {transport} or seen.reports < case.ranks:
        return f"{seen.reports} summaries of {sorted(seen.transports)}, not {case.ranks} of {transport}"
    if seen.sealed < case.ranks if case.transport == "mlt-key" else seen.sealed:
        return f"packets are sealed on {seen.sealed} ranks"
    if seen.sent_bytes < least_bytes:
        return f"{seen.sent_bytes} bytes through the plugin, not {least_bytes} or more"
    if (seen.sent_messages, seen.sent_bytes) != (seen.received_messages, seen.received_bytes):
        return (f"{seen.sent_messages} messages / {seen.sent_bytes} bytes sent, "
                f"{seen.received_messages} / {seen.received_bytes} received")
    direct = ["/GDRDMA" in edge for edge in seen.edges]
    if not direct or any(found != reaches_gpus(case) for found in direct):
        return f"edges are {sorted(set(seen.edges))}; GDRDMA is to be in all of tcp-gdr and mlt-gdr and in no other"
    to_gpu = seen.received_bytes if reaches_gpus(case) else 0
    from_gpu = 0 if sends_from_host(case) else to_gpu
    if (seen.from_gpu, seen.to_gpu) != (from_gpu, to_gpu):
        return f"{seen.from_gpu} bytes came from GPU memory and {seen.to_gpu} went to it, not {from_gpu} and {to_gpu}"
    if case.transport == "mlt-loss" and least_bytes > 1 << 20 and not seen.sent_again:
        return "nothing was lost: no packet was sent again"
    return wrong_choice(seen, case)


def reaches_gpus(case):
    return case.transport.endswith("-gdr")


def sends_from_host(case):
    """LL's send buffers are always in host memory. Connections of send/receive have buffers for Simple only (Shared)."""
    return case.collective != "sendrecv" and case.protocol == "LL"


def wrong_calls(folder, received_bytes):
    """Nothing, or what is missing from the calls that the log shim wrote to `folder`, of a run over GPU memory with
    Simple: GPU memory is registered by every rank, and all that came is flushed."""
    flushed = 0
    for path in sorted(folder.iterdir()):
        with path.open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["result"] == "0"]
        if not any(row["call"] == "regMr" and row["tag"] == CUDA for row in rows):
            return f"{path.name}: no GPU memory was registered"
        flushed += sum(int(row["bytes"]) for row in rows if row["call"] == "iflush")
    return "" if 0 < flushed == received_bytes else f"{flushed} bytes were flushed of {received_bytes} received"


def wrong_choice(seen, case):
    # NCCL names no choice for send/receive.
    if case.collective == "sendrecv":
        return ""
    odd = sorted(choice for choice in seen.chosen if choice[1:] != ("RING", case.protocol.upper()))
    if odd or not seen.chosen:
        return f"NCCL chose {odd or 'nothing'}, not RING with {case.protocol.upper()}"
    return ""
