#!/usr/bin/env python3
"""fi_info and fi_pingpong over the provider, on loopback: all sizes to 1 MiB, every byte checked. Needs libfabric-bin."""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time

SKIPPED = 77


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def fail(what, *outputs):
    print(f"FAILED: {what}")
    for output in outputs:
        print(output)
    sys.exit(1)


def check_info(environment):
    listed = subprocess.run(["fi_info", "-p", "clustar"], env=environment, capture_output=True, text=True, timeout=60)
    wanted = ("provider: clustar", "domain: lo", "type: FI_EP_RDM")
    if listed.returncode != 0 or any(words not in listed.stdout for words in wanted):
        fail("fi_info -p clustar", listed.stdout, listed.stderr)
    # What is not offered is not advertised.
    refused = subprocess.run(["fi_info", "-p", "clustar", "-c", "FI_RMA"], env=environment, capture_output=True, timeout=60)
    if refused.returncode == 0:
        fail("fi_info -p clustar -c FI_RMA found something")


def wait_for_listener(port, server, limit=30):
    """By the kernel's table, since a connection would be taken for the client's; which does not try twice."""
    end = time.monotonic() + limit
    while time.monotonic() < end and server.poll() is None:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as lines:
                if any(f":{int(port):04X}" in line.split()[1] and line.split()[3] == "0A" for line in lines):
                    return
        time.sleep(0.05)
    server.kill()
    fail("fi_pingpong's server does not listen", server.communicate()[0])


def run(environment, mode, iterations, limit):
    port = str(free_port())
    command = ["fi_pingpong", "-p", "clustar", "-e", "rdm", "-m", mode, "-c", "-S", "all", "-I", str(iterations)]
    server = subprocess.Popen(command + ["-B", port], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    try:
        wait_for_listener(port, server)
        client = subprocess.run(command + ["-P", port, "127.0.0.1"], env=environment, capture_output=True, text=True,
                                timeout=limit)
        said, _ = server.communicate(timeout=30)
    except subprocess.TimeoutExpired as late:
        server.kill()
        fail(f"-m {mode}: not over in {late.timeout:.0f} s", late.stdout, server.communicate()[0])
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    if client.returncode != 0 or server.returncode != 0:
        fail(f"-m {mode}: client {client.returncode}, server {server.returncode}", client.stdout + client.stderr, said)
    rows = [line.split() for line in client.stdout.splitlines()]
    sizes = [row[0] for row in rows if len(row) > 5 and row[0] != "bytes"]
    if "64" not in sizes or "1m" not in sizes:
        fail(f"-m {mode}: sizes {sizes}", client.stdout)
    print(client.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="of libclustar-fi.so")
    parser.add_argument("--transport", required=True)
    parser.add_argument("--faults", default="", help="CLUSTAR_INJECT_FAULTS of both ends")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--limit", type=float, default=100, help="seconds of one fi_pingpong")
    options = parser.parse_args()
    for tool in ("fi_info", "fi_pingpong"):
        if shutil.which(tool) is None:
            print(f"SKIP: no {tool} (package libfabric-bin)")
            sys.exit(SKIPPED)
    environment = dict(os.environ, FI_PROVIDER_PATH=options.folder, FI_CLUSTAR_TRANSPORT=options.transport,
                       CLUSTAR_SOCKET_IFNAME="lo")
    if options.faults:
        environment["CLUSTAR_INJECT_FAULTS"] = options.faults
    check_info(environment)
    for mode in ("msg", "tagged"):
        run(environment, mode, options.iterations, options.limit)


if __name__ == "__main__":
    main()
