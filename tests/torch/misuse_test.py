"""Wrong calls give exceptions that say what is allowed; ranks that contradict each other learn of it soon."""

import datetime
import time
import unittest

import torch
import torch.distributed as dist

import clustar_torch
import ranks


def wrong_calls(rank, n):
    group = dist.distributed_c10d._get_default_group()
    one, two = torch.ones(4), torch.ones(2)
    cases = {
        "sparse": lambda: dist.all_reduce(torch.eye(3).to_sparse()),
        "meta": lambda: dist.broadcast(torch.empty(3, device="meta"), 0),
        "2 tensors; allowed: 1": lambda: group.allreduce([one, two]),
        "average": lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG),
        "bits of": lambda: dist.all_reduce(one, dist.ReduceOp.BXOR),
        "allowed: one per rank": lambda: dist.all_gather([torch.empty(4)], one),
        "allowed: all of one size": lambda: dist.all_gather([torch.empty(4), torch.empty(3)], one),
        "allowed: all of one type": lambda: group.allgather([[torch.empty(4), torch.empty(4).int()]], [one]),
        "times the input": lambda: dist.all_gather_into_tensor(torch.empty(5), two),
        "times the output": lambda: dist.reduce_scatter_tensor(torch.empty(2), torch.empty(5)),
        "allowed: all rows": lambda: dist.all_to_all_single(torch.empty(4), one, [1, 1], [1, 3]),
        "allowed: a multiple": lambda: dist.all_to_all_single(torch.empty(3), torch.empty(3)),
        "this rank": lambda: group.send([one], rank, 0),
        "allowed: 0 to 1": lambda: group.send([one], 2, 0),
        "share memory": lambda: dist.all_reduce(torch.ones(1).expand(10)),
        "tag -1": lambda: group.send([one], 1 - rank, -1),
    }
    for expected, call in cases.items():
        said = ranks.message_of(call)
        assert expected.lower() in said.lower(), (expected, said)
    # None of them has done any harm.
    dist.all_reduce(one)
    assert one[0] == n


def contradiction(first, second, expected):
    """Rank 1 calls the second. A rank that has its result before another fails learns of it in its next operation."""
    def body(rank, n):
        def both():
            (second if rank == 1 else first)()
            dist.all_reduce(torch.ones(1))
        begin = time.monotonic()
        said = ranks.message_of(both)
        return said, time.monotonic() - begin
    told = ranks.run(3, body)
    assert all(seconds < 15 for _, seconds in told), told
    assert any(expected in said for said, _ in told), told


class Misuse(unittest.TestCase):
    def test_wrong_calls(self):
        ranks.run(2, wrong_calls)

    def test_other_types(self):
        contradiction(lambda: dist.all_reduce(torch.ones(5000)), lambda: dist.all_reduce(torch.ones(5000).int()),
                      "all ranks must start the same operations")

    def test_other_sizes(self):
        contradiction(lambda: dist.all_reduce(torch.ones(5000)), lambda: dist.all_reduce(torch.ones(5001)), "all ranks")

    def test_other_collectives(self):
        contradiction(lambda: dist.all_reduce(torch.ones(6)), lambda: dist.broadcast(torch.ones(6), 1), "all ranks")

    def test_other_exchanges(self):
        def gather():
            dist.gather(torch.ones(6), [torch.ones(6) for _ in range(3)] if dist.get_rank() == 0 else None, 0)

        def all_to_all():
            dist.all_to_all_single(torch.ones(6), torch.ones(6))
        contradiction(gather, all_to_all, "all ranks must start the same operations")

    def test_other_roots(self):
        def gather(root):
            dist.gather(torch.ones(6), [torch.ones(6) for _ in range(3)] if dist.get_rank() == root else None, root)

        def scatter(root):
            dist.scatter(torch.ones(6), [torch.ones(6) for _ in range(3)] if dist.get_rank() == root else None, root)
        contradiction(lambda: gather(0), lambda: gather(1), "all ranks must start the same operations")
        contradiction(lambda: scatter(0), lambda: scatter(1), "all ranks must start the same operations")

    def test_longer_than_clocks_count(self):
        def body(rank, n):
            group = dist.new_group(timeout=datetime.timedelta(days=200_000))
            dist.all_reduce(torch.ones(3), group=group)
        ranks.run(2, body)

    def test_other_message_sizes(self):
        def body(rank, n):
            out = []
            for size in (10, 10_000):
                tensor = torch.ones(size if rank == 0 else size + 1)
                if rank == 0 and size == 10:
                    dist.send(tensor, 1)  # it fits into its offer: nobody answers
                    out.append("")
                else:
                    out.append(ranks.message_of(lambda: dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)))
            dist.barrier()
            return out
        sender, receiver = ranks.run(2, body)
        assert "rank 0 sent 40 bytes, where this rank expects 44" in receiver[0], receiver
        assert "rank 0 sent 40000 bytes" in receiver[1] and "rank 1 expects 40004" in sender[1], (sender, receiver)

    def test_not_our_group(self):
        def body(rank, n):
            said = ranks.message_of(lambda: clustar_torch.abort("x"))
            assert "of another backend" in said, said
        ranks.run(1, body, backend="gloo")


if __name__ == "__main__":
    unittest.main()
