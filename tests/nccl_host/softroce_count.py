"""What goes over the cable of the virtual machine of scripts/softroce-vm: RoCE v2 alone, as tc counts it at both ends."""

import json
import pathlib
import subprocess

ENDS = ("va", "vb")
DEVICES = ("rxe_a", "rxe_b")
ROCE_V2_PORT = 4791  # RoCEv2's UDP port, by IANA
AGAIN = ("duplicate_request", "rcvd_seq_err", "rcvd_rnr_err", "completer_retry_err")  # of rdma_rxe's counters


def tc(*words):
    return subprocess.run(["tc", *words], check=True, capture_output=True, text=True).stdout


def begin():
    """Counts from now on what leaves by either end."""
    for end in ENDS:
        tc("qdisc", "add", "dev", end, "clsact")
        tc("filter", "add", "dev", end, "egress", "protocol", "ip", "flower", "ip_proto", "udp", "dst_port", str(ROCE_V2_PORT),
           "action", "gact", "ok")


def filter_counters(text):
    """Packets and bytes of the one filter of `tc -s -j filter show`."""
    for one in json.loads(text):
        for action in one.get("options", {}).get("actions", []):
            stats = action["stats"]
            return stats["packets"], stats["bytes"]
    raise ValueError("tc shows no filter with an action")


def counters():
    """Since begin(): at both ends together, packets and bytes as frames; how often rdma_rxe sent again, or was asked to."""
    packets, sizes = zip(*(filter_counters(tc("-s", "-j", "filter", "show", "dev", end, "egress")) for end in ENDS))
    again = sum(int(pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}").read_text(encoding="ascii"))
                for device in DEVICES for name in AGAIN)
    return {"roce_packets": sum(packets), "roce_bytes": sum(sizes), "retry_events": again}
