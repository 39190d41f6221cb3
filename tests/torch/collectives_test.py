"""Every collective, type and reduction against what PyTorch computes of all ranks' inputs, in 1 to 5 ranks."""

import functools
import unittest

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import ranks

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = [torch.bool] + INTEGERS + FLOATS + COMPLEX


def made(rank, dtype, *shape, salt=0):
    """What a rank brings: the same in every process."""
    g = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if dtype in INTEGERS:
        return torch.randint(0 if dtype == torch.uint8 else -4, 5, shape, generator=g).to(dtype)
    if dtype in COMPLEX:
        return torch.complex(torch.randn(shape, generator=g), torch.randn(shape, generator=g)).to(dtype)
    return torch.randn(shape, generator=g).to(dtype)


def reduced(op, tensors):
    wide = [t.double() if t.is_floating_point() else t for t in tensors]
    if op == ReduceOp.AVG:
        return (sum(wide[1:], wide[0]) / len(wide)).to(tensors[0].dtype)
    is_bool = tensors[0].dtype == torch.bool
    fold = {
        ReduceOp.SUM: torch.logical_or if is_bool else torch.add,
        ReduceOp.PRODUCT: torch.logical_and if is_bool else torch.mul,
        ReduceOp.MIN: torch.logical_and if is_bool else torch.minimum,
        ReduceOp.MAX: torch.logical_or if is_bool else torch.maximum,
        ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor,
    }[op]
    return functools.reduce(fold, wide).to(tensors[0].dtype)


def reductions(dtype):
    if dtype in COMPLEX:
        return [ReduceOp.SUM, ReduceOp.AVG]  # c10d itself refuses the others
    if dtype in FLOATS:
        return [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    return [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]


def check_reductions(rank, n):
    for dtype in ALL:
        for op in reductions(dtype):
            for shape in [(), (7,), (3, 1001)]:
                inputs = [made(r, dtype, *shape) for r in range(n)]
                want = reduced(op, inputs)
                mine = inputs[rank].clone()
                dist.all_reduce(mine, op)
                ranks.same(mine, want)
                mine = inputs[rank].clone()
                dist.reduce(mine, n - 1, op)
                ranks.same(mine, want if rank == n - 1 else inputs[rank])
            inputs = [[made(r, dtype, 33, salt=block) for block in range(n)] for r in range(n)]
            want = reduced(op, [inputs[r][rank] for r in range(n)])
            out = torch.empty_like(want)
            dist.reduce_scatter(out, inputs[rank], op)
            ranks.same(out, want)
            out = torch.empty_like(want)
            dist.reduce_scatter_tensor(out, torch.cat(inputs[rank]), op)
            ranks.same(out, want)


def check_moves(rank, n):
    for dtype in ALL:
        for shape in [(), (5,), (40, 301)]:
            all_of = [made(r, dtype, *shape) for r in range(n)]
            for root in range(n):
                mine = all_of[rank].clone()
                dist.broadcast(mine, root)
                ranks.same(mine, all_of[root])
                got = [torch.empty_like(mine) for _ in range(n)] if rank == root else None
                dist.gather(all_of[rank], got, root)
                for r in range(n if rank == root else 0):
                    ranks.same(got[r], all_of[r])
                out = torch.empty_like(mine)
                parts = [made(r, dtype, *shape, salt=7) for r in range(n)]
                dist.scatter(out, parts if rank == root else None, root)
                ranks.same(out, parts[rank])
            got = [torch.empty_like(all_of[0]) for _ in range(n)]
            dist.all_gather(got, all_of[rank])
            for r in range(n):
                ranks.same(got[r], all_of[r])
            matrix = [[made(a, dtype, *shape, salt=b) for b in range(n)] for a in range(n)]
            got = [torch.empty_like(all_of[0]) for _ in range(n)]
            dist.all_to_all(got, matrix[rank])
            for r in range(n):
                ranks.same(got[r], matrix[r][rank])
        flat = torch.empty(n * 6, dtype=dtype)
        dist.all_gather_into_tensor(flat, made(rank, dtype, 6))
        ranks.same(flat, torch.cat([made(r, dtype, 6) for r in range(n)]))
        several = [[made(r, dtype, 3, salt=1), made(r, dtype, 2, 5, salt=2)] for r in range(n)]
        got = [[torch.empty_like(one) for one in list_] for list_ in several]
        dist.all_gather_coalesced(got, several[rank])
        for r in range(n):
            for i in range(2):
                ranks.same(got[r][i], several[r][i])
        # Rank a sends a + b + 1 rows to rank b; rank 0 sends itself none.
        rows = lambda a, b: a + b + (1 if a + b else 0)
        send = torch.cat([made(rank, dtype, rows(rank, b), 3, salt=b) for b in range(n)])
        got = torch.empty(sum(rows(a, rank) for a in range(n)), 3, dtype=dtype)
        dist.all_to_all_single(got, send, [rows(a, rank) for a in range(n)], [rows(rank, b) for b in range(n)])
        ranks.same(got, torch.cat([made(a, dtype, rows(a, rank), 3, salt=rank) for a in range(n)]))
        got = torch.empty(2 * n, dtype=dtype)
        dist.all_to_all_single(got, torch.cat([made(rank, dtype, 2, salt=b) for b in range(n)]))
        ranks.same(got, torch.cat([made(a, dtype, 2, salt=rank) for a in range(n)]))


def check_strides_and_empty(rank, n):
    base = [made(r, torch.float32, 6, 8) for r in range(n)]
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:4, 2:5]):
        mine = base[rank].clone()
        dist.all_reduce(view(mine))
        ranks.same(view(mine), reduced(ReduceOp.SUM, [view(b) for b in base]))
        untouched = torch.ones(6, 8, dtype=torch.bool)
        view(untouched)[:] = False
        assert torch.equal(mine[untouched], base[rank][untouched])
        mine = base[rank].clone()
        dist.broadcast(view(mine), 0)
        ranks.same(view(mine), view(base[0]))
        got = [view(torch.zeros(6, 8)) for _ in range(n)]
        dist.all_gather(got, view(base[rank]))
        for r in range(n):
            ranks.same(got[r], view(base[r]))
    # With a gradient, as DDP's parameters.
    leaf = base[rank].clone().requires_grad_()
    dist.broadcast(leaf.detach(), 0)
    ranks.same(leaf.detach(), base[0])
    for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN):
        dist.all_reduce(torch.empty(0), op)
    dist.broadcast(torch.empty(0), 0)
    dist.all_gather([torch.empty(0, 3) for _ in range(n)], torch.empty(0, 3))
    dist.reduce_scatter(torch.empty(0), [torch.empty(0) for _ in range(n)])
    dist.all_to_all_single(torch.empty(0), torch.empty(0))
    dist.gather(torch.empty(0), [torch.empty(0) for _ in range(n)] if rank == 0 else None, 0)
    coalesced = [made(rank, torch.float32, 3), made(rank, torch.float32, 2, 2)]
    dist.all_reduce_coalesced(coalesced)
    ranks.same(coalesced[1], reduced(ReduceOp.SUM, [made(r, torch.float32, 2, 2) for r in range(n)]))
    nan = torch.tensor([float("nan") if rank == 0 else 1.0, float("inf") if rank == n - 1 else 2.0])
    dist.all_reduce(nan)
    assert nan[0].isnan() and nan[1] == float("inf")


def check_asynchronous(rank, n):
    many = [torch.full((100 + i,), float(rank + i)) for i in range(100)]
    works = [dist.all_reduce(t, async_op=True) for t in many]
    big = torch.full((3_000_000,), float(rank))
    work = dist.all_reduce(big, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    for w in reversed(works):
        assert w.wait()
    for i, t in enumerate(many):
        assert torch.equal(t, torch.full((100 + i,), float(sum(r + i for r in range(n))))), i
    assert doubled.wait()[5] == n * (n - 1)
    assert work.wait() and work.is_completed() and future.done()
    ranks.same(work.result()[0], big)
    ranks.same(works[0].get_future().wait()[0], many[0])
    # A callback may wait for another operation, and several at once.
    def chained(i):
        first = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        return first.then(lambda f: dist.all_reduce(f.value()[0] + i, async_op=True).get_future().wait()[0])
    if n == 2:
        futures = [chained(0)]
        assert futures[0].wait()[0] == n * n
    # A barrier comes after what was started before it.
    late = torch.ones(1_000_000)
    before = dist.all_reduce(late, async_op=True)
    dist.barrier()
    assert before.is_completed()


def check_groups(rank, n):
    sets = [members for members in (list(range(0, n, 2)), list(range(1, n, 2)), [n - 1]) if members]
    groups = [dist.new_group(members) for members in sets]
    for group, members in zip(groups, sets):
        if rank not in members:
            continue
        t = torch.tensor([float(rank)])
        dist.all_reduce(t, group=group)
        assert t[0] == sum(members)
        t = torch.tensor([float(rank)])
        dist.broadcast(t, members[-1], group=group)
        assert t[0] == members[-1]
        if len(members) > 1 and rank in members[:2]:
            if rank == members[0]:
                dist.send(t, members[1], group=group)
            else:
                dist.recv(t, members[0], group=group)
        dist.barrier(group=group)
    mixed = dist.new_group(list(range(n)), backend="gloo")
    t = torch.ones(3)
    dist.all_reduce(t, group=mixed)
    dist.all_reduce(t)
    assert t[0] == n * n
    dist.destroy_process_group(groups[0])
    dist.barrier()


def everything(rank, n):
    check_reductions(rank, n)
    check_moves(rank, n)
    check_strides_and_empty(rank, n)
    check_asynchronous(rank, n)
    check_groups(rank, n)


class Collectives(unittest.TestCase):
    def test_of_one_rank(self):
        ranks.run(1, everything)

    def test_of_two_ranks(self):
        ranks.run(2, everything)

    def test_of_three_ranks(self):
        ranks.run(3, everything)

    def test_of_five_ranks(self):
        ranks.run(5, check_moves)
        ranks.run(5, check_groups)


if __name__ == "__main__":
    unittest.main()
