"""scripts/softroce-vm where it cannot run: it skips (77) or fails (125) with a sentence, whatever is missing.

Programs of the same names, in front in PATH, stand in for apt, the disk and QEMU: no machine is booted, nothing is
downloaded.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = None
KERNEL = "9.9-amd64"
RECIPE = "0" * 8
NO_LISTS = {"apt-cache": "exit 100"}
KNOWN = {"apt-cache": f"echo '  Depends: linux-image-{KERNEL}'"}


class SoftroceVm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="softroce_vm_test.")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.cache = self.root / "cache" / "clustar-softroce-vm"

    def run_script(self, fakes, arguments=(), **environment):
        programs = self.root / "bin"
        programs.mkdir(exist_ok=True)
        always = {"uname": "echo x86_64", "sha256sum": f"cat >/dev/null; echo {RECIPE}", "qemu-system-x86_64": "exit 9"}
        for name, body in {**always, **fakes}.items():
            (programs / name).write_text(f"#!/bin/sh\n{body}\n")
            (programs / name).chmod(0o755)
        variables = {"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(self.root), "HOME": str(self.root),
                     "XDG_CACHE_HOME": str(self.root / "cache"), **environment}
        done = subprocess.run([SCRIPT, *arguments, "--", "true"], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, env={k: v for k, v in variables.items() if v is not None})
        if "packages are missing" in done.stderr:
            self.skipTest(done.stderr)
        return done.returncode, done.stderr

    def make_kernel(self):
        kernel = self.cache / f"{KERNEL}.{RECIPE}"
        kernel.mkdir(parents=True)
        for name in ("vmlinuz", "base.cpio.gz"):
            (kernel / name).touch()

    def expect(self, outcome, status, words):
        self.assertEqual(outcome[0], status, outcome[1])
        self.assertIn(words, outcome[1])
        if status == 77:
            self.assertTrue(outcome[1].splitlines()[-1].startswith("SKIP: softroce-vm: "), outcome[1])

    def test_without_lists_and_cache_it_says_what_to_run(self):
        outcome = self.run_script({**NO_LISTS, "grep": "exit 0"})
        self.expect(outcome, 77, "apt-get update")

    def test_another_distribution_is_told_to_take_debian(self):
        outcome = self.run_script({**NO_LISTS, "grep": "exit 1"})
        self.expect(outcome, 77, "needs Debian")

    def test_without_a_home_it_asks_for_a_cache(self):
        self.expect(self.run_script(KNOWN, HOME=None, XDG_CACHE_HOME=None), 77, "XDG_CACHE_HOME")

    def test_a_cache_that_cannot_be_made(self):
        (self.root / "cache").touch()
        self.expect(self.run_script(KNOWN), 77, "cannot be written")

    def test_a_temporary_folder_that_cannot_be_made(self):
        self.expect(self.run_script(KNOWN, TMPDIR="/proc/none"), 77, "TMPDIR")

    def test_a_small_disk_is_seen_before_the_download(self):
        outcome = self.run_script({**KNOWN, "df": "echo Avail; echo 399", "apt-get": "exit 1"})
        self.expect(outcome, 77, "room for 399 MB")
        self.assertNotIn("downloading", outcome[1])

    def test_a_disk_that_is_full_in_between(self):
        # Room at first, and none when a program has failed.
        df = f'echo Avail; if [ -e {self.root}/unpacked ]; then echo 0; else echo 9999; fi'
        unpack = {"apt-get": "exit 0", "dpkg-deb": "exit 0", "tar": f"touch {self.root}/unpacked; exit 2", "df": df}
        self.expect(self.run_script({**KNOWN, **unpack}), 77, "is full")
        self.assertEqual([path.name for path in self.cache.iterdir()], ["lock"])

    def test_another_failure_is_not_mistaken_for_the_commands(self):
        unpack = {"apt-get": "exit 0", "dpkg-deb": "exit 0", "tar": "exit 2", "df": "echo Avail; echo 9999"}
        self.expect(self.run_script({**KNOWN, **unpack}), 125, "tar -x")

    def test_a_download_that_fails(self):
        outcome = self.run_script({**KNOWN, "df": "echo Avail; echo 9999", "apt-get": "echo E: no route; exit 100"})
        self.expect(outcome, 77, "cannot be downloaded")
        self.assertIn("E: no route", outcome[1])

    def test_a_lock_that_another_run_keeps(self):
        self.expect(self.run_script({**KNOWN, "flock": "exit 1"}), 77, "another run")

    def test_qemu_that_is_killed_early_is_not_a_matter_of_time(self):
        self.make_kernel()
        outcome = self.run_script({**KNOWN, "qemu-system-x86_64": "kill -9 $$"}, ["--timeout", "50"])
        self.expect(outcome, 125, "QEMU was killed")
        self.assertNotIn("are over", outcome[1])

    def test_the_time_that_is_over(self):
        self.make_kernel()
        outcome = self.run_script({**KNOWN, "qemu-system-x86_64": "exec sleep 50"}, ["--timeout", "1"])
        self.expect(outcome, 124, "1 s are over")

    def test_the_last_kernel_serves_without_lists(self):
        self.make_kernel()
        self.expect(self.run_script(NO_LISTS), 125, "QEMU ended with status 9")


if __name__ == "__main__":
    SCRIPT = sys.argv.pop(1)
    unittest.main()
