"""Programs of rdma-core and perftest between the two devices of scripts/softroce-vm."""

import shutil
import subprocess
import time

# Few and small messages: the processor is emulated, and shared with the programs that these run beside.
PROGRAMS = {
    "ibv_rc_pingpong": "-g 1 -n 50 -s 4096",
    "ibv_uc_pingpong": "-g 1 -n 50 -s 1024",
    "ibv_ud_pingpong": "-g 1 -n 50 -s 1024",
    "ib_write_bw": "-x 1 -n 100 -s 4096 -F",
    "ib_send_lat": "-x 1 -n 100 -s 64 -F",
}
LIMIT = 30  # seconds


class Failed(Exception):
    pass


def run_pair(name, options):
    """The seconds it took; Failed with both ends' words unless both succeed."""
    if shutil.which(name) is None:
        raise Failed(f"{name} is not installed: packages ibverbs-utils and perftest (scripts/setup)")
    began = time.monotonic()
    command = [name, *options.split()]
    server = subprocess.Popen([*command, "-d", "rxe_a"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    client = None
    try:
        # A client that comes before its server listens is refused, and tries again.
        while time.monotonic() - began < LIMIT:
            client = subprocess.run([*command, "-d", "rxe_b", "10.9.0.1"], capture_output=True, text=True,
                                    timeout=LIMIT)
            if client.returncode == 0 or server.poll() is not None:
                break
            time.sleep(0.2)
        output, _ = server.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{name} hangs: {error}; {client.stdout + client.stderr if client else ''}") from error
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    if client is None or client.returncode != 0 or server.returncode != 0:
        said = client.stdout[-300:] + client.stderr[-300:] if client else ""
        raise Failed(f"{name}: the server ended with {server.returncode}: {output[-300:]} the client: {said}")
    return time.monotonic() - began


def run_all():
    """Yields (name, seconds) after each."""
    for name, options in PROGRAMS.items():
        yield name, run_pair(name, options)
