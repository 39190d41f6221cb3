"""The cable of scripts/softroce-vm from inside: its counters, its faults, and the way of IP packets over it.

Two ends in one network namespace: va (10.9.0.1, rxe_a) and vb (10.9.0.2, rxe_b). As a program it leads those packets
there.
"""

import pathlib
import subprocess
import time

ENDS = ("a", "b")
ADDRESS = {"a": "10.9.0.1", "b": "10.9.0.2"}
# Of each end: the address that is reached through it, and a routing table.
ROUTES = {"a": ("10.9.0.2", "101"), "b": ("10.9.0.1", "102")}


def run(command, check=True):
    # The guest's kernel may take most of a minute to take a link down while rdma_rxe sends on it.
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=120)
    if check and done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def other(end):
    return "b" if end == "a" else "a"


def lead_over_cable():
    """Both addresses are this host's, so the kernel would deliver IP packets between them over lo. Afterwards those
    that leave a socket bound to one end's address for the other's go over the cable, as between two hosts; an unbound
    socket's (the trainer's own bootstrap) stay on lo. RoCE always takes the cable."""
    if "iif va" in run("ip rule"):
        return  # done since the machine came up
    for end in ENDS:
        run(f"ip rule add pref {1 + ENDS.index(end)} iif v{end} lookup local")
    for end in ENDS:
        peer, table = ROUTES[end]
        run(f"ip rule add pref {11 + ENDS.index(end)} from {ADDRESS[end]} to {peer} lookup {table}")
    add_routes()
    # In this order: without a rule for the local table no address is this host's.
    run("ip rule add pref 20 lookup local")
    run("ip rule del pref 0")


def add_routes():
    for end in ENDS:
        peer, table = ROUTES[end]
        run(f"ip route replace {peer} dev v{end} src {ADDRESS[end]} table {table}")
        # While the link is down: otherwise what was on its way would go on over lo.
        run(f"ip route replace unreachable {peer} metric 9999 table {table}")


def cut():
    run("ip link set va down")


def mend():
    run("ip link set va up")
    add_routes()  # the kernel removes a device's routes with the link


def disturb(netem):
    """What tc's netem does to the packets of both directions, e.g. "loss 1%"; returns without doing anything for ""."""
    for end in ENDS if netem else ():
        run(f"tc qdisc replace dev v{end} root netem limit 20000 {netem}")


def calm():
    for end in ENDS:
        run(f"tc qdisc del dev v{end} root", check=False)


def dropped():
    """Packets that the qdiscs of both ends dropped since disturb()."""
    total = 0
    for end in ENDS:
        words = run(f"tc -s qdisc show dev v{end} root").replace(",", " ").split()
        total += int(words[words.index("(dropped") + 1]) if "(dropped" in words else 0
    return total


def count_dscp():
    """From now on, bytes of IPv4 that leave either end, by DSCP, until stop_counting_dscp()."""
    lines = []
    for end in ENDS:
        lines.append(f"qdisc add dev v{end} clsact")
        lines += [f"filter add dev v{end} egress protocol ip prio {dscp + 1} u32 match ip tos {dscp << 2:#x} 0xfc "
                  "action ok" for dscp in range(64)]
    subprocess.run(["tc", "-batch", "-"], input="\n".join(lines), text=True, check=True, timeout=30)


def dscp_counts():
    """{DSCP: bytes}, of both ends, without zeros."""
    counts = {}
    for end in ENDS:
        pref = None
        for line in run(f"tc -s filter show dev v{end} egress").splitlines():
            words = line.split()
            if "pref" in words:
                pref = int(words[words.index("pref") + 1])
            elif words[:1] == ["Sent"] and int(words[1]) > 0:
                counts[pref - 1] = counts.get(pref - 1, 0) + int(words[1])
    return dict(sorted(counts.items()))


def stop_counting_dscp():
    for end in ENDS:
        run(f"tc qdisc del dev v{end} clsact", check=False)


def read_number(path):
    return int(path.read_text())


def counters():
    """{(where, name): count}: of the RDMA devices, of the cable's ends and of lo."""
    counts = {}
    for end in ENDS:
        for path in sorted(pathlib.Path(f"/sys/class/infiniband/rxe_{end}/ports/1/hw_counters").iterdir()):
            if path.name != "lifespan":
                counts[f"rxe_{end}", path.name] = read_number(path)
    for device in ("va", "vb", "lo"):
        folder = pathlib.Path(f"/sys/class/net/{device}/statistics")
        for name in ("tx_bytes", "tx_packets"):
            counts[device, name] = read_number(folder / name)
    return counts


def difference(after, before):
    return {key: after[key] - before.get(key, 0) for key in after}


def table(counts):
    """Lines of a table: a row for each counter that is not 0, a column for each end."""
    rows = {}
    for (where, name), count in counts.items():
        if where != "lo":
            rows.setdefault(name, {})[where[-1]] = count
    lines = [f"  {'counter':<24}{'a':>12}{'b':>12}"]
    lines += [f"  {name:<24}{row['a']:>12}{row['b']:>12}" for name, row in rows.items() if any(row.values())]
    lines.append(f"  {'tx_bytes on lo':<24}{counts['lo', 'tx_bytes']:>12}")
    return lines


def wait_for_bytes(amount, alive, limit):
    """Waits until each end has sent `amount` bytes since now; False when `alive()` is, or after `limit` seconds."""
    before, until = counters(), time.monotonic() + limit
    while time.monotonic() < until and alive():
        sent = difference(counters(), before)
        if min(sent["va", "tx_bytes"], sent["vb", "tx_bytes"]) >= amount:
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    lead_over_cable()
