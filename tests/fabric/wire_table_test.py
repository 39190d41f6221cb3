"""scripts/mlt-wire-table: what it refuses, and, as root, one comparison on each kind of host with nothing left behind."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT, BUILD = sys.argv[1], sys.argv[2]


def run(*words):
    process = subprocess.Popen([SCRIPT, "--build", BUILD, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=100)
    return subprocess.CompletedProcess(process.pid, process.returncode, out, err)


class Usage(unittest.TestCase):
    def test_bad_values_are_named(self):
        for words, expected in ((("--mtu", "1400"), "1500, 9000"), (("--ports", "x"), "segmented, offloads"),
                                (("--parts", "x"), "bandwidth, latency"), (("--rounds", "4"), "5 to 1000"),
                                (("--seconds", "100"), "0.01 to 60"), (("--out", "/nonexistent/t.md"), "/nonexistent/t.md"),
                                (("--build", "/nonexistent"), "build it")):
            done = run(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)

    def test_help(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("example:", done.stdout)


@unittest.skipIf(os.geteuid() != 0, "needs root for network namespaces")
class Hosts(unittest.TestCase):
    def test_a_row_on_each_kind(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            for ports in ("segmented", "offloads"):
                done = run("--quick", "--seconds", "0.01", "--mtu", "1500", "--ports", ports, "--parts", "latency", "--out",
                           str(out / "t.md"), "--json", str(out / "t.json"))
                self.assertEqual(done.returncode, 0, done.stderr)
                rows = [line for line in done.stdout.splitlines() if "8 B round trip" in line]
                self.assertEqual(len(rows), 2, done.stdout)
                self.assertIn("bare UDP", rows[0])
                self.assertEqual((out / "t.md").read_text(), done.stdout)
                row = json.loads((out / "t.json").read_text())[0]["row"]
                self.assertEqual(row["offload_mode"], "segmented" if ports == "segmented" else "offloads on")
                left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
                self.assertNotIn(f"wire-{done.args}", left)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
