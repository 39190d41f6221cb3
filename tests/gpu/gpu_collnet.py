"""Whether NCCL's all-reduces went by the plugin's collective network, by NCCL's own log (docs/collnet.md)."""

import collections
import re

CHAIN = "COLLNET_CHAIN"
END = re.compile(r"\[(send|receive)\] via COLLNET/\S*")
CHOSEN = re.compile(r"AllReduce: \d+ Bytes -> Algo (\w+)")
WHY_NOT = re.compile(r"CollNet is not offered: .*|less than CollNet node threshold.*|CollNet connect: .*")


def read(text):
    """What one rank's log says."""
    ends = {"host": set(), "gpu": set()}
    for match in END.finditer(text):
        ends["gpu" if "/GDRDMA" in match[0] else "host"].add(match[1])
    why = WHY_NOT.search(text)
    return {"ends": {memory: sorted(kinds) for memory, kinds in ends.items()},
            "all_reduces": dict(collections.Counter(CHOSEN.findall(text))), "why_not": why[0].strip() if why else ""}


def judge(ranks, memory):
    """Why CollNet did not carry all of every rank's all-reduces, from `memory`; empty if it did."""
    for rank, seen in enumerate(ranks):
        if not any(seen["ends"].values()):
            return f"rank {rank}: NCCL connected no collective network: {seen['why_not'] or 'its log does not say why'}"
        other = "host" if memory == "gpu" else "gpu"
        if seen["ends"][memory] != ["receive", "send"] or seen["ends"][other]:
            return f"rank {rank}: the ends in host memory are {seen['ends']['host']}, in GPU memory {seen['ends']['gpu']}; " \
                   f"wanted: both in {memory} memory"
        if list(seen["all_reduces"]) != [CHAIN]:
            return f"rank {rank}: NCCL's all-reduces went by {seen['all_reduces'] or 'nothing that its log names'}, not {CHAIN} alone"
    return ""
