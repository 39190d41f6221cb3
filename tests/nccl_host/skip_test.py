"""scripts/nccl-host where NCCL's source is missing, or the CUDA headers: it says what to do, and ends with 77."""

import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from unittest import mock

import nccl_host

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(program, timeout=None, **settings):
    # A source that is named there must not be found.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CLUSTAR_")}
    return subprocess.run(program, env={**environment, **settings}, capture_output=True, text=True, check=False,
                          timeout=timeout)


class Skips(unittest.TestCase):
    def setUp(self):
        # A copy beside which there is no ../shared.
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tree = pathlib.Path(self.folder.name, "tree")
        shutil.copytree(ROOT / "tests/nccl_host", self.tree / "tests/nccl_host")
        (self.tree / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/nccl-host", self.tree / "scripts")

    def test_without_source(self):
        done = run([self.tree / "scripts/nccl-host", "--", "true"])
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("git clone", done.stderr)

    def test_matrix_without_source(self):
        done = run(["python3", "-B", self.tree / "tests/nccl_host/matrix_test.py"])
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("git clone", done.stdout)

    def test_conform_without_source(self):
        done = run(["python3", "-B", self.tree / "tests/nccl_host/conform.py", "--plugin", "socket"])
        said = json.loads(done.stdout)
        self.assertEqual((done.returncode, said["status"]), (2, 2), done.stderr)
        for part in ("git clone", "--nccl-source", "CLUSTAR_NCCL_SOURCE"):
            self.assertIn(part, said["error"])

    def test_a_source_that_was_named_must_be_there(self):
        done = run([self.tree / "scripts/nccl-host", "--source", "/nonexistent", "--", "true"])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("/nonexistent", done.stderr)

    def test_what_is_no_source_is_named(self):
        folder = pathlib.Path(self.folder.name)
        (folder / "loop").symlink_to("loop")
        os.mkfifo(folder / "pipe")
        (folder / "text").write_text("no tarball")
        (folder / "whole").mkdir()
        (folder / "whole/data").write_bytes(os.urandom(200000))
        with tarfile.open(folder / "cut.tar.xz", "w:xz") as archive:
            archive.add(folder / "whole", "whole")
        os.truncate(folder / "cut.tar.xz", 100000)
        (folder / "old/makefiles").mkdir(parents=True)
        (folder / "old/makefiles/version.mk").write_text("NCCL_MAJOR := x")
        (folder / "old/src").mkdir()
        (folder / "old/src/nccl.h.in").touch()
        for name, reason in (("loop", "does not exist"), ("pipe", "neither a folder nor a file"), ("text", "it is no tarball"),
                             ("cut.tar.xz", "a part of one"), ("old", "does not say NCCL_MAJOR")):
            with self.subTest(name):
                done = run(["python3", "-B", self.tree / "tests/nccl_host/conform.py", "--source", folder / name], timeout=30)
                self.assertEqual((done.returncode, done.stderr), (2, ""))
                said = json.loads(done.stdout)
                self.assertIn(reason, said["error"])
                self.assertNotIn("\n", said["error"])
        self.assertEqual(list((self.tree / "build/nccl-host").glob("source-*")), [])

    def test_the_program_does_not_get_the_source(self):
        """The plugin refuses settings of its prefix that it does not know."""
        with mock.patch.dict(os.environ, {"CLUSTAR_NCCL_SOURCE": "/somewhere"}):
            self.assertNotIn("CLUSTAR_NCCL_SOURCE", list(nccl_host.environment(pathlib.Path("/library/libnccl.so.2"))))

    def test_jobs_out_of_range(self):
        done = run([self.tree / "scripts/nccl-host", "--jobs", "0"])
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("1 to 256", done.stderr)


if __name__ == "__main__":
    unittest.main()
