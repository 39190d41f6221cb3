"""Sends and receives: in any order, of any size, from any rank."""

import unittest

import torch
import torch.distributed as dist

import ranks

SIZES = [0, 1, 1000, 1018, 1019, 100_000, 3_000_000]  # 1018 floats are the most that an offer carries


def check_sizes(rank, n):
    for size in SIZES:
        if rank == 0:
            for to in range(1, n):
                dist.send(torch.arange(float(size)) + to, to, tag=size % 7)
        else:
            got = torch.full((size,), -1.0)
            assert dist.recv(got, 0, tag=size % 7) == 0
            ranks.same(got, torch.arange(float(size)) + rank)


def check_crossed(rank, n):
    """More than a channel takes at once, received last first, while as many go the other way."""
    other = 1 - rank
    count = 200
    sends = [dist.isend(torch.full((5000 if i % 2 else 5,), float(i + 1000 * rank)), other, tag=i) for i in range(count)]
    got = [torch.empty(5000 if i % 2 else 5) for i in range(count)]
    for i in reversed(range(count)):
        dist.recv(got[i], other, tag=i)
        assert torch.equal(got[i], torch.full_like(got[i], float(i + 1000 * other))), i
    for work in sends:
        work.wait()
    # Messages with the same tag come in their order.
    sends = [dist.isend(torch.tensor([float(i)]), other, tag=1) for i in range(50)]
    for i in range(50):
        one = torch.empty(1)
        dist.recv(one, other, tag=1)
        assert one.item() == i
    for work in sends:
        work.wait()
    # Both send first.
    mine, theirs = torch.full((2_000_000,), float(rank)), torch.empty(2_000_000)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)]):
        work.wait()
    assert theirs[-1] == other


def check_any_source(rank, n):
    if rank:
        for i in range(20):
            dist.send(torch.full((2000 if i % 2 else 2,), float(rank)), 0, tag=i)
        return
    for i in range(20):
        heard = set()
        for _ in range(n - 1):
            got = torch.empty(2000 if i % 2 else 2)
            source = dist.recv(got, tag=i)
            assert torch.equal(got, torch.full_like(got, float(source)))
            heard.add(source)
        assert heard == set(range(1, n))


def check_beside_collectives(rank, n):
    """A message is in no order with collectives: one that waits holds up nothing."""
    other = rank ^ 1
    got = torch.empty(100_000, 3).t()
    receive = dist.irecv(got, other, tag=9) if other < n else None
    total = torch.ones(10)
    dist.all_reduce(total)
    dist.barrier()
    if other < n:
        dist.isend(torch.full((3, 100_000), float(rank)), other, tag=9).wait()
        receive.wait()
        assert got[2, 99_999] == other
    dist.barrier()


class Messages(unittest.TestCase):
    def test_sizes(self):
        ranks.run(3, check_sizes)

    def test_crossed_orders(self):
        ranks.run(2, check_crossed)

    def test_from_any_rank(self):
        ranks.run(4, check_any_source)

    def test_beside_collectives(self):
        ranks.run(4, check_beside_collectives)
        ranks.run(3, check_beside_collectives)


if __name__ == "__main__":
    unittest.main()
