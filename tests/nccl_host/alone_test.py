"""Two that build NCCL's library, or unpack its source, at once in one folder: one does it, the other waits. No NCCL, no compiler."""

import concurrent.futures
import contextlib
import io
import os
import pathlib
import signal
import tarfile
import tempfile
import threading
import unittest
from unittest import mock

import alone
import library
import source


class Meeting(io.StringIO):
    """A standard error that tells when somebody waits, and what a first one calls to go on only then."""

    def __init__(self):
        super().__init__()
        self.somebody_waits = threading.Event()
        self.first = threading.Event()

    def write(self, text):
        if "waiting for it" in text:
            self.somebody_waits.set()
        return super().write(text)

    def await_second(self):
        """A second one that comes without waiting ends the first one's wait, too."""
        if self.first.is_set():
            self.somebody_waits.set()
        self.first.set()
        return self.somebody_waits.wait(20)


class Alone(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.meeting = Meeting()

    def two_at_once(self, what):
        """What both return; the second begins when the first is in the middle of it."""
        pool = concurrent.futures.ThreadPoolExecutor(2)
        # One that hangs is not waited for here; CTest ends the process.
        self.addCleanup(pool.shutdown, wait=False)
        with contextlib.redirect_stderr(self.meeting):
            first = pool.submit(what)
            # A first one that fails comes to no middle.
            first.add_done_callback(lambda _: self.meeting.first.set())
            self.assertTrue(self.meeting.first.wait(20))
            second = pool.submit(what)
            results = [each.result(30) for each in (first, second)]
        self.assertIn("another one builds", self.meeting.getvalue())
        return results

    def test_the_library_is_built_by_one(self):
        tree = self.folder / "tree"
        for name, text in (("makefiles/version.mk", "NCCL_MAJOR := 2\nNCCL_MINOR := 28\nNCCL_PATCH := 9\n"), ("src/nccl.h.in", ""),
                           ("src/init.cc", ""), ("cuda/include/cuda_runtime.h", "")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        made, guard = [], threading.Lock()

        def call(command, **_):
            out = pathlib.Path(command[command.index("-o") + 1])
            with guard:
                made.append(out)
            out.write_text("half")
            self.assertTrue(self.meeting.await_second())
            out.write_text("whole")

        with mock.patch.multiple(library, CUDA=tree / "cuda", generated=mock.DEFAULT, call=call):
            results = self.two_at_once(lambda: library.build(tree, self.folder / "build", 1))
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0].read_text(), "whole")
        self.assertEqual(len(made), len(set(made)), "made twice")

    def test_the_source_is_unpacked_by_one(self):
        (self.folder / "nccl-1").mkdir()
        (self.folder / "nccl-1/file").write_text("all of it")
        tarball = self.folder / "nccl-1-src.tar.xz"
        with tarfile.open(tarball, "w:xz") as archive:
            archive.add(self.folder / "nccl-1", "nccl-1")
        opened = []

        def slowly(path):
            opened.append(path)
            self.assertTrue(self.meeting.await_second())
            return tarfile.TarFile.open(path)

        with mock.patch.object(source.tarfile, "open", slowly):
            results = self.two_at_once(lambda: source.unpacked(tarball, self.folder / "build"))
        self.assertEqual((results[0], (results[0] / "file").read_text(), len(opened)), (results[1], "all of it", 1))

    def test_who_is_killed_keeps_nobody_waiting(self):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            with alone.in_folder(self.folder):
                signal.alarm(60)
                os.write(writes, b"x")
                signal.pause()
        os.close(writes)
        self.assertEqual(os.read(reads, 1), b"x")
        os.close(reads)
        with contextlib.redirect_stderr(self.meeting):
            waiting = threading.Thread(target=self.enter)
            waiting.start()
            self.assertTrue(self.meeting.somebody_waits.wait(20))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            waiting.join(20)
        self.assertFalse(waiting.is_alive())

    def enter(self):
        with alone.in_folder(self.folder):
            pass


if __name__ == "__main__":
    unittest.main()
