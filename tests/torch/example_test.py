"""examples/ddp.py and examples/clustar_api.py: what runs without a GPU. The plugin is $CLUSTAR_TEST_PLUGIN."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import torch
import torch.distributed as dist

import clustar_api
import ddp
import ranks


class Bucket:
    """Of one gradient, as DDP hands one to a hook."""

    def __init__(self, gradient):
        self.gradient = gradient

    def buffer(self):
        return self.gradient

    def index(self):
        return 0


class LossyApi:
    """As if of rank 0's first send to rank 1 the network had lost bytes 64 to 128."""

    def __init__(self, rank):
        self.rank = rank

    def comm_id(self, name):
        return 7 if name == ddp.NAME else None

    def missing_from(self, comm_id, sender, number, send_bytes):
        return [(64, 64)] if (comm_id, self.rank, sender, number) == (7, 1, 0, 0) else []

    def lost_to(self, comm_id, receiver, number, send_bytes):
        return [(64, 64)] if (comm_id, self.rank, receiver, number) == (7, 0, 1, 0) else []


def means(rank, n):
    """Of four exchanges of gradients 1 and 3, element 0 of what each rank gets, and element 20, which was lost once."""
    state = ddp.DirectExchange(ddp.named_group("gloo"), lambda: LossyApi(rank))
    lose = dist.batch_isend_irecv
    if rank == 1:
        class Zeroed:
            def __init__(self, transfer, block):
                self.transfer, self.block = transfer, block

            def wait(self):
                self.transfer.wait()
                self.block[16:32] = 0  # of the missing bytes

        def losing(operations):
            transfers = lose(operations)
            if state.exchanges:
                return transfers
            return [Zeroed(transfer, operation.tensor) if operation.op is dist.irecv else transfer
                    for transfer, operation in zip(transfers, operations)]

        dist.batch_isend_irecv = losing
    out = []
    for _ in range(4):
        mean = ddp.direct(state, Bucket(torch.full((200,), float(1 + 2 * rank)))).value()
        out.append((mean[0].item(), mean[120].item()))
    return out, state.rescaled, state.returned


class Example(unittest.TestCase):
    def test_what_is_lost_is_scaled_up_and_sent_again(self):
        # Element 120 is the 20th of rank 1's block. Of both ranks' 1 and 3 only its own 3 came first, and 1 was added to
        # what rank 0 sent when it knew.
        for out, rescaled, returned in ranks.run(2, means, backend="gloo"):
            self.assertEqual(out, [(2.0, 3.0), (2.0, 2.0), (2.0, 2.5), (2.0, 2.0)])
            self.assertIn((rescaled, returned), [(0, 16), (16, 0)])

    def test_ranges_are_those_of_the_send(self):
        self.assertEqual(clustar_api.chunk_bytes(4 << 20), 128 << 10)
        self.assertEqual(clustar_api.chunk_bytes(200 << 10), 64 << 10)
        self.assertIsNone(clustar_api.chunk_bytes(100 << 10))
        self.assertEqual(ddp.elements([(64, 64), (8, 8)], torch.zeros(100)), [slice(16, 32), slice(2, 4)])

    @unittest.skipUnless(os.environ.get("CLUSTAR_TEST_PLUGIN"), "CLUSTAR_TEST_PLUGIN does not name the plugin")
    def test_the_plugins_table_is_read_as_it_lies(self):
        self.assertIsNone(clustar_api.loaded())
        api = clustar_api.Api(os.environ["CLUSTAR_TEST_PLUGIN"])
        self.assertRegex(api.version, r"^\d+\.\d+\.\d+")
        totals = api.totals()
        self.assertEqual((totals.delivered_bytes, totals.missing_bytes, totals.sent_messages), (0, 0, 0))
        self.assertEqual(api.collectives(), [])
        self.assertEqual(api.missing_from(1, 0, 0, 4 << 20), [])
        self.assertEqual(clustar_api.loaded().version, api.version)

    def test_it_trains_as_ddp_does_without_the_hook(self):
        losses = {}
        for exchange in ("allreduce", "direct"):
            # Streams named for a rank that is not there: PyTorch 1.13 fails under Python 3.11 without.
            done = subprocess.run([sys.executable, "-B", "-m", "torch.distributed.run", "--nproc_per_node", "3", "--master_port",
                                   "29461", "--redirects", "9:1", "--tee", "9:1", str(EXAMPLES / "ddp.py"), "--backend", "gloo", "--exchange", exchange, "--steps", "30"],
                                  capture_output=True, text=True, timeout=100, check=False,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("clustar's plugin is not in this process", done.stdout)
            losses[exchange] = float(re.search(r"replicas identical; loss (\S+)", done.stdout)[1])
        self.assertLess(losses["allreduce"], 1.5)
        self.assertAlmostEqual(losses["direct"], losses["allreduce"], places=3)

    def test_without_a_gpu_it_says_so(self):
        done = subprocess.run([sys.executable, "-B", str(EXAMPLES / "ddp.py")], capture_output=True, text=True, check=False)
        if not torch.cuda.is_available():
            self.assertEqual((done.returncode, done.stdout[:5]), (77, "SKIP:"), done.stderr)


if __name__ == "__main__":
    unittest.main()
