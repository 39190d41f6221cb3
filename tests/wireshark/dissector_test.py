#!/usr/bin/env python3
"""The Wireshark dissector over packets that mlt_samples serialized: under a stub of Wireshark, or under tshark."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

SKIP = 77  # the exit status that CTest counts as skipped
HERE = os.path.dirname(os.path.abspath(__file__))
DISSECTOR = os.path.join(HERE, "..", "..", "docs", "wireshark", "clustar-mlt.lua")
HEX_FIELDS = {"secret", "open.communicator", "ack.before"}  # shown so, while open.collective_bytes is decimal


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIP)


def run_lua(samples):
    """Needs integers of 64 bits, so Lua 5.3 or later."""
    for name in ("lua5.4", "lua5.3", "lua"):
        lua = shutil.which(name)
        if lua and subprocess.run([lua, "-e", "os.exit(math.type ~= nil)"]).returncode == 0:
            break
    else:
        skip("no Lua 5.3 or later; Debian's lua5.4 has it")
    return subprocess.run([lua, os.path.join(HERE, "dissector_test.lua"), os.path.join(HERE, "wireshark_stub.lua"),
                           DISSECTOR, samples]).returncode


def read(samples):
    packets = []
    with open(samples, encoding="utf-8") as lines:
        for line in lines:
            first, rest = line.rstrip("\n").split(" ", 1)
            if first == "packet":
                name, valid = rest.split(" ")[:2]
                packets.append((name, valid == "1", {}))
            else:
                packets[-1][2].setdefault(first, []).append(rest)
    return packets


def same(field, shown, expected):
    if field in ("state.ranges", "data.payload", "padding", "seal.tag", "@info"):
        return shown == expected
    if field in HEX_FIELDS or field in ("open.collective_bytes", "open.number", "seal.counter"):
        return int(shown, 0) == int(expected, 16)
    return {"True": 1, "False": 0}.get(shown, None) == int(expected) or shown.lstrip("-")[:1].isdigit() and \
        int(shown, 0) == int(expected)


def run_tshark(capture, samples):
    tshark = shutil.which("tshark")
    if not tshark:
        skip("no tshark; Debian's tshark has it")
    packets = read(samples)
    fields = sorted({field for _, _, expected in packets for field in expected})
    columns = {field: "_ws.col.Info" if field == "@info" else f"clustar_mlt.{field}" for field in fields}
    kinds = ("framing", "version", "type", "length", "reserved", "range")
    command = [tshark, "-X", f"lua_script:{DISSECTOR}", "-r", capture, "-T", "fields", "-E", "separator=/t", "-E",
               "occurrence=a", "-E", "aggregator=;", "-e", "_ws.col.Protocol", "-e", "_ws.expert.message"]
    for column in list(columns.values()) + [f"clustar_mlt.malformed.{kind}" for kind in kinds]:
        command += ["-e", column]
    environment = dict(os.environ, HOME=os.path.dirname(capture), XDG_CONFIG_HOME=os.path.dirname(capture))
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        if "Lua" not in subprocess.run([tshark, "--version"], capture_output=True, text=True).stdout:
            skip("this tshark was built without Lua")
        print(result.stderr)
        return 1
    lines = result.stdout.split("\n")[:-1]
    failures = [] if len(lines) == len(packets) else [f"{len(lines)} packets of {len(packets)}"]
    for number, (line, (name, valid, expected)) in enumerate(zip(lines, packets), 1):
        cells = line.split("\t")
        if cells[0] != "MLT":
            failures.append(f"{number} {name}: protocol {cells[0]}")
        if "Lua Error" in cells[1] or valid and "alformed" in cells[1]:
            failures.append(f"{number} {name}: {cells[1]}")
        if any(cells[2 + len(fields):]) == valid:
            failures.append(f"{number} {name}: valid is {valid}, malformed is {cells[2 + len(fields):]}")
        for field, shown in zip(fields, cells[2:]):
            values = expected.get(field, [])
            found = [shown] if field == "@info" else shown.split(";") if shown else [""] * (values == [""])
            if values and not (len(found) == len(values) and all(map(lambda f, v: same(field, f, v), found, values))):
                failures.append(f"{number} {name}: {field} is {shown}, expected {values}")
    print("\n".join(failures[:20]))
    print(f"tshark: {len(lines)} packets, {len(failures)} failures")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["lua", "tshark"])
    parser.add_argument("mlt_samples")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture, samples = os.path.join(folder, "samples.pcapng"), os.path.join(folder, "samples.txt")
        with open(samples, "w", encoding="utf-8") as stream:
            subprocess.run([arguments.mlt_samples, capture], stdout=stream, check=True)
        return run_lua(samples) if arguments.mode == "lua" else run_tshark(capture, samples)


if __name__ == "__main__":
    sys.exit(main())
