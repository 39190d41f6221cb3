"""What conform_verdict reads out of a run's output and NCCL's logs, without NCCL."""

import os
import pathlib
import tempfile
import types
import unittest

import conform
import conform_verdict

LOADED = "h:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin Foo (v11)\n"
USED = "h:1:2 [0] NCCL INFO Using network Foo\n"
EDGE = "h:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Foo/0\n"
GPU_EDGE = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Foo/0(0)/GDRDMA\n"
MADE = "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 - Init COMPLETE\n"
RINGS = "h:1:2 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0\n"
LOG = LOADED + USED + MADE + EDGE + RINGS
WELL = "   0            8            2    float        sum         12.5          0\n# checked: 0 wrong\n"
LATE = "nccl-host-perf: not done after --timeout 9 s\n"


class Verdicts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tree = pathlib.Path(self.folder.name)
        (self.tree / "src/transport").mkdir(parents=True)
        (self.tree / "src/transport/net.cc").write_text("\n  NCCLCHECK(proxyState->ncclNet->isend(a, b));\n  NCCLCHECK(other(a));\n"
                                                        "  NCCLCHECK(proxyState->ncclNet->test(a, b));\n")

    def verdict(self, text=WELL, log=LOG, status=0, name="all_reduce.2x8B", plugin="./libfoo.so", gpu=False):
        seen = conform_verdict.Seen(text, log, self.tree)
        case = types.SimpleNamespace(name=name, limit=9)
        return conform_verdict.verdict(seen, status, case, types.SimpleNamespace(plugin=plugin, emulated_gpu=gpu))

    def assert_fails(self, said, **run):
        outcome, reason = self.verdict(**run)
        self.assertEqual(outcome, "fail", reason)
        self.assertIn(said, reason)

    def test_well(self):
        self.assertEqual(self.verdict(), ("pass", "all bits right; 1 ends of connections over Foo"))
        self.assertEqual(self.verdict(text="split: 3 ranks, 77 elements compared, 0 wrong\n")[0], "pass")
        self.assertEqual(self.verdict(text="kill: 1 of 1 trials of 3 ranks well; the latest error after 5 ms, the longest abort 7 ms")[1],
                         "all bits right; 1 ends of connections over Foo; error after 5 ms, abort 7 ms")

    def test_another_network(self):
        other = LOG + "h:1:2 [0] NCCL INFO Failed to initialize NET plugin Foo\n" + USED.replace("Foo", "Socket")
        self.assert_fails("fell back to Socket on 1 of 2 communicators, so the plugin was not used: Failed to initialize", log=other)
        self.assert_fails("connections go over Socket", log=LOG + EDGE.replace("Foo", "Socket"))
        self.assert_fails("did not load the plugin: NET/Plugin: Could not find: libfoo.so",
                          log="h:1:2 [0] NCCL INFO NET/Plugin: Could not find: libfoo.so\n" + USED.replace("Foo", "Socket"))

    def test_socket_instead_of_a_plugin(self):
        log = (USED + EDGE).replace("Foo", "Socket")
        self.assertEqual(self.verdict(log=log, plugin="socket"), ("pass", "all bits right; 1 ends of connections over Socket"))
        self.assert_fails("fell back to IB", log=log + USED.replace("Foo", "IB"), plugin="socket")

    def test_nothing_compared_or_connected(self):
        self.assert_fails("nothing of a comparison", text="")
        self.assert_fails("nothing of a comparison", text="# not checked: 0 wrong\n")
        self.assert_fails("nothing of a comparison", text="split: 3 ranks, 0 elements compared, 0 wrong, FAILED\n")
        self.assert_fails("nothing of a comparison", text="kill: 1 of 2 trials of 3 ranks well;")
        self.assert_fails("no connection over a network", log=LOADED + USED)

    def test_wrong_bits(self):
        text = "rank 1, first wrong: byte 4 of 8 is 0xff instead of 0x00\n   1  8  2  float  sum  12.5  1\n   3  8  2  float  sum  12.5  2\n"
        self.assert_fails("wrong bits and no error: 1 of 2 elements on rank 1 (and on 1 more ranks); byte 4 of 8 is 0xff", text=text, status=1)
        self.assert_fails("wrong bits and no error: 3 of 77 elements", text="split: 3 ranks, 77 elements compared, 3 wrong\n", status=1)

    def test_a_call_that_failed(self):
        here = "h:1:2 [0] NCCL INFO {}transport/net.cc:{} -> {}\n"
        remote, own = here.format("", 4, 6), here.format("/else/where/src/", 2, 3)
        self.assert_fails("isend returned ncclInternalError (3) (NCCL's transport/net.cc:2)", status=1, log=LOG + remote + own)
        self.assert_fails("test returned ncclRemoteError (6)", status=1, log=LOG + here.format("", 3, 3) + remote)
        self.assert_fails("wrong bits", status=1, log=LOG + remote, text="   1  8  2  float  sum  12.5  1\n")
        # To who is ended at last the others ended.
        self.assert_fails("stuck", status=1, log=LOG + remote, text=LATE)

    def test_stuck(self):
        self.assert_fails("stuck: not done in 9 s, in transfers", text=LATE, status=1)
        self.assert_fails("stuck: not done in 9 s, in transfers", text="", status=None)
        self.assert_fails("while ranks connected", text=LATE, status=1, log=LOADED + USED + MADE + EDGE)
        self.assert_fails("while communicators were made", text=LATE, status=1, log=LOADED + USED)
        self.assert_fails("before NCCL had chosen a network", text=LATE, status=1, log="")
        self.assert_fails("stuck", text=LATE + "nccl-host-perf: ncclAllReduce: remote process exited\n", status=1)

    def test_crash(self):
        self.assert_fails("rank 1 crashed with SIGSEGV, in transfers", text="nccl-host-perf: rank 1 ended by signal 11\n", status=1)
        # glibc keeps 32 and 33 for itself; 34 is SIGRTMIN.
        for number, said in ((34, "SIGRTMIN"), (40, "SIGRTMIN+6"), (64, "SIGRTMAX"), (33, "signal 33")):
            self.assert_fails(f"rank 1 crashed with {said}, in", text=f"nccl-host-perf: rank 1 ended by signal {number}\n", status=1)

    def test_a_death_that_nobody_hears_of(self):
        text = ("kill: trial 0: a rank did not end well\n  rank 0 (victim): 3 rounds, error 0 , abort took 0 ms\n"
                "  rank 1: 3 rounds, error 6 x, abort took 9 ms\n  rank 2: 3 rounds, error 0 , abort took 0 ms\n" + LATE)
        self.assert_fails("a rank did not end well: no error in 9 s on rank 2", text=text, status=1, name="scenario.kill")

    def test_what_the_program_says(self):
        text = "nccl-host-perf: ncclCommInitRank: internal error ()\n"
        log = LOG + "h:1:2 [0] file.cc:3 NCCL WARN no   way\n"
        self.assert_fails("ncclCommInitRank: internal error; NCCL's log: no way", text=text, log=log, status=1)
        self.assert_fails("ended with status 3", text="", status=3)

    def test_memory_of_a_gpu(self):
        self.assertEqual(self.verdict(gpu=True)[0], "skip")
        self.assertEqual(self.verdict(gpu=True, log=LOG + GPU_EDGE),
                         ("pass", "all bits right; 2 ends of connections over Foo, 1 of them of GPU memory"))


class SharedMemory(unittest.TestCase):
    def test_what_a_log_names_is_removed_and_no_other(self):
        paths = []
        for _ in range(2):
            handle, path = tempfile.mkstemp(prefix="nccl-", suffix=None, dir="/dev/shm")
            os.close(handle)
            renamed = path[:len("/dev/shm/nccl-") + 6]
            os.rename(path, renamed)
            paths.append(pathlib.Path(renamed))
            self.addCleanup(pathlib.Path(renamed).unlink, missing_ok=True)
        conform.forget_shared_memory(f"h:1:2 [0] NCCL INFO Allocated 34210180 bytes of shared memory in {paths[0]}\n"
                                     f"bytes of shared memory in {paths[1]}/../x\n")
        self.assertEqual([path.exists() for path in paths], [False, True])


if __name__ == "__main__":
    unittest.main()
