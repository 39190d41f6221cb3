"""Ranks that die, are late or give up: all others get an exception soon, and memory stays the user's."""

import datetime
import tempfile
import time
import unittest

import torch
import torch.distributed as dist

import clustar_torch
import ranks


def timed(call):
    begin = time.monotonic()
    said = ranks.message_of(call)
    return said, time.monotonic() - begin


def killed_within(call):
    """Rank 1 dies while the others are in this call."""
    def body(rank, n):
        dist.all_reduce(torch.ones(10))
        if rank == 1:
            time.sleep(0.3)
            ranks.die()
        return timed(call)
    told = ranks.run(3, body, timeout=60, killed=[1])
    for rank in (0, 2):
        said, seconds = told[rank]
        assert seconds < 10, told
    return told


class Failures(unittest.TestCase):
    def test_killed_in_a_collective(self):
        told = killed_within(lambda: dist.all_reduce(torch.ones(1_000_000)))
        assert all("rank 1" in told[rank][0] for rank in (0, 2)), told

    def test_killed_in_a_barrier(self):
        killed_within(dist.barrier)

    def test_killed_in_an_exchange(self):
        killed_within(lambda: dist.all_to_all_single(torch.ones(30_000), torch.ones(30_000)))

    def test_killed_while_messages_wait(self):
        told = killed_within(lambda: dist.recv(torch.ones(10), 1) if dist.get_rank() == 0
                             else dist.send(torch.ones(100_000), 1))
        assert all("rank 1" in told[rank][0] for rank in (0, 2)), told
        killed_within(lambda: dist.recv(torch.ones(10)))

    def test_killed_in_training(self):
        def body(rank, n):
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))

            def train():
                for step in range(100_000):
                    if rank == 1 and step == 20:
                        ranks.die()
                    model(torch.ones(4, 100)).sum().backward()
            return timed(train)
        told = ranks.run(3, body, timeout=60, killed=[1])
        assert told[0][1] < 20 and told[2][1] < 20, told

    def test_timeouts(self):
        def body(rank, n):
            begin = time.monotonic()
            got = torch.full((10,), 5.0)
            if rank == 0:
                # A message that does not come ends alone.
                said, seconds = timed(lambda: dist.recv(got, 1, tag=3))
                assert "timeout" in said and 1.5 < seconds < 5, (said, seconds)
                work = dist.irecv(got, 1, tag=4)
                said, seconds = timed(lambda: work.wait(timeout=datetime.timedelta(milliseconds=100)))
                assert seconds < 1, seconds
            dist.barrier() if rank == 0 else None
            if rank == 1:
                time.sleep(2.5)
                dist.barrier()
                dist.send(torch.ones(10), 0, tag=4)
            else:
                work.wait()
                assert got[0] == 1
            # A collective that not all come to ends the group.
            if rank == 0:
                mine = torch.ones(1000)
                said, seconds = timed(lambda: dist.all_reduce(mine))
                assert "timeout" in said and seconds < 6, (said, seconds)
                assert torch.equal(mine, torch.ones(1000))
                said, seconds = timed(lambda: dist.all_reduce(mine))
                assert "timeout" in said and seconds < 1, (said, seconds)
            else:
                time.sleep(4)
                said, seconds = timed(lambda: dist.all_reduce(torch.ones(1000)))
                assert "rank 0" in said or "timeout" in said, said
            return time.monotonic() - begin
        ranks.run(2, body, timeout=2)

    def test_a_monitored_barrier_names_who_does_not_come(self):
        def body(every):
            def in_rank(rank, n):
                for _ in range(3):
                    clustar_torch.monitored_barrier()
                soon = datetime.timedelta(seconds=1)
                if rank not in (1, 3):
                    said, seconds = timed(lambda: clustar_torch.monitored_barrier(timeout=soon, wait_all_ranks=every))
                    assert 0.5 < seconds < 4, seconds
                    if rank == 0:
                        assert "rank 1 did not come: it did not end within its timeout of " in said, said
                        assert ("rank 3 did not come" in said) == every, said
                    else:
                        assert "rank 2 has come, and rank 0 does not let it go on" in said, said
                # The group is as it was.
                one = torch.ones(10)
                dist.all_reduce(one)
                assert one[0] == n
            return in_rank
        for every in (False, True):
            ranks.run(4, body(every))

    def test_abort(self):
        def body(rank, n):
            store = dist.distributed_c10d._get_default_store()
            if rank == 0:
                work = dist.all_reduce(torch.ones(10), async_op=True)
                future = work.get_future()
                time.sleep(0.2)
                clustar_torch.abort("the loss is not a number")
                store.set("aborted", "")
                said, seconds = timed(work.wait)
                assert "not a number" in ranks.message_of(future.wait)
            else:
                store.wait(["aborted"], datetime.timedelta(seconds=60))
                said, seconds = timed(lambda: dist.all_reduce(torch.ones(10)))
            assert seconds < 5, seconds
            return said
        told = ranks.run(3, body)
        assert all("not a number" in said for said in told), told

    def test_memory_may_go_while_it_is_used(self):
        def body(rank, n):
            if rank == 0:
                works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(20)]
                del works
                dist.irecv(torch.ones(100_000), 1)
                time.sleep(0.3)
                clustar_torch.close()
                assert "closed" in ranks.message_of(lambda: dist.all_reduce(torch.ones(1)))
            else:
                time.sleep(0.2)
        ranks.run(2, body)

    def test_one_that_leaves(self):
        """Who is done goes; the others still send each other messages, and learn who is not there any more."""
        def body(rank, n):
            dist.all_reduce(torch.ones(1))
            if rank == 0:
                return
            time.sleep(0.5)
            other = 3 - rank
            if rank == 1:
                dist.send(torch.ones(50_000), other)
            else:
                dist.recv(torch.ones(50_000), other)
            said, seconds = timed(lambda: dist.recv(torch.ones(3), 0))
            assert "rank 0" in said and seconds < 5, (said, seconds)
        ranks.run(3, body)

    def test_nobody_is_left(self):
        def body(rank, n):
            if rank == 1:
                return clustar_torch.close()
            said, seconds = timed(lambda: dist.recv(torch.ones(3)))
            assert "have left" in said or "has left" in said, said
            assert seconds < 5, seconds
        ranks.run(2, body)

    def test_a_late_exchange_ends_the_group(self):
        def body(rank, n):
            if rank == 1:
                time.sleep(4)
                return
            inputs = [torch.ones(3), torch.ones(3)]
            said, seconds = timed(lambda: dist.gather(torch.ones(3), inputs, 0))
            assert "timeout" in said and seconds < 4, (said, seconds)
            said, seconds = timed(lambda: dist.all_reduce(torch.ones(3)))
            assert "timeout" in said and seconds < 1, (said, seconds)
        ranks.run(2, body, timeout=2)

    def test_who_does_not_come(self):
        with tempfile.TemporaryDirectory() as folder:
            store = dist.FileStore(folder + "/store", 2)
            said, seconds = timed(lambda: clustar_torch._create(store, 0, 2, datetime.timedelta(seconds=1)))
        assert "rank 1 did not come" in said and seconds < 4, (said, seconds)


if __name__ == "__main__":
    unittest.main()
