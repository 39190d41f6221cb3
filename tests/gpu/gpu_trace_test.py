#!/usr/bin/env python3
"""The judge of traces: right ones of many shapes, and one of each kind of deviation."""

import os
import tempfile
import unittest

import fake_ring
import gpu_trace

COMM = f"{7:016x}"
FUNCTIONS = {"AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter", "AllGather": "all_gather"}


def made(function, total, ranks, count):
    return {"collective": FUNCTIONS[function], "bytes": total * (ranks if function == "AllGather" else 1),
            "ranks": ranks, "iterations": count - 1}


def traces(ranks, runs, local=False):
    """Of `runs` [(function, total_bytes, count)] on one communicator; and what the program says that it made."""
    out = [[] for _ in range(ranks)]
    for rank, rows in enumerate(out):
        numbers = dict.fromkeys(FUNCTIONS, 0)
        for function, total, count in runs:
            for _ in range(count):
                rows += fake_ring.sends(function, total, rank, ranks, numbers[function], COMM, local)
                numbers[function] += 1
        for line, row in enumerate(rows, 2):
            row["line"] = line
    return out, [made(function, total, ranks, count) for function, total, count in runs]


class RightTraces(unittest.TestCase):
    def judge(self, ranks, runs, kind="ring"):
        rows, results = traces(ranks, runs, kind == "graph")
        wrong, seen = gpu_trace.judge(kind, rows, ranks, results, True)
        self.assertEqual(wrong, "")
        return seen

    def test_sizes_and_ranks(self):
        for ranks in range(2, 9):
            for total in (4, 64, 1000, 65536, 3 << 20, 64 << 20):
                total = max(total // 4 // ranks, 1) * ranks * 4
                with self.subTest(ranks=ranks, total=total):
                    self.judge(ranks, [(function, total, 2) for function in FUNCTIONS])

    def test_several_loops_are_seen(self):
        seen = self.judge(2, [("AllReduce", 64 << 20, 1)])
        self.assertEqual(seen["most_loops"], 8)
        self.assertEqual(seen["identified"], seen["sends"])
        self.assertEqual(seen["numbers"], {f"AllReduce on 2 ranks, comm {COMM}": "1 from 0 to 0"})

    def test_replays_with_their_own_numbers(self):
        self.assertEqual(self.judge(2, [("AllReduce", 4096, 5)], "graph")["replays"],
                         "5 collectives replayed on rank 0 have 5 numbers, each its own")

    def test_replays_that_share_a_number_are_reported(self):
        rows, results = traces(2, [("AllReduce", 4096, 5)], True)
        for row in sum(rows, []):
            row["number"] = "0"
        wrong, seen = gpu_trace.judge("graph", rows, 2, results, True)
        self.assertEqual(wrong, "")
        self.assertEqual(seen["replays"], "5 collectives replayed on rank 0 have 1 numbers, some share one")

    def test_point_to_point_needs_no_identity(self):
        rows, results = traces(2, [("AllReduce", 4096, 1)])
        unknown = dict.fromkeys(fake_ring.FIELDS[11:], "-")
        rows[0].insert(0, {**rows[0][0], **unknown, "op": "SendRecv"})
        self.assertEqual(gpu_trace.judge("ring", rows, 2, results, True)[0], "")

    def test_other_algorithms_where_nccl_chooses(self):
        rows, results = traces(2, [("AllReduce", 4096, 1), ("AllReduce", 65536, 1)])
        for row in sum(rows, []):
            if row["number"] == "0":
                row.update(dict.fromkeys(gpu_trace.Phase._fields, "-"), algo="Tree", coll_algo="Tree", proto="LL",
                           coll_proto="LL")
        self.assertEqual(gpu_trace.judge("defaults", rows, 2, results, True)[0], "")
        self.assertIn("not a ring with Simple", gpu_trace.judge("ring", rows, 2, results, True)[0])

    def test_without_set_net_attr_there_is_nothing_to_compare(self):
        rows, results = traces(2, [("AllReduce", 4096, 1)])
        for row in sum(rows, []):
            row.update(op="-", algo="-", proto="-")
        self.assertEqual(gpu_trace.judge("ring", rows, 2, results, False)[0], "")
        self.assertIn("setNetAttr and the profiler differ", gpu_trace.judge("ring", rows, 2, results, True)[0])

    def test_files(self):
        rows, _ = traces(2, [("AllReduce", 65536, 1)])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.csv")
            fake_ring.write(path, rows[0])
            back = gpu_trace.rows_of(path)
        self.assertEqual(len(back), len(rows[0]), "sends alone, without the cut one")
        self.assertEqual([row["line"] for row in back[:2]], [2, 4])
        self.assertEqual(gpu_trace.rows_of("/nonexistent/trace.csv"), [])


class Deviations(unittest.TestCase):
    """Each changes right traces of 3 ranks in one way."""

    RUNS = (("AllReduce", 30 << 20, 2), ("ReduceScatter", 3 << 20, 3), ("AllGather", 4096, 2))

    def expect(self, text, change, kind="ring"):
        rows, results = traces(3, self.RUNS, kind == "graph")
        change(rows, results)
        self.assertIn(text, gpu_trace.judge(kind, rows, 3, results, True)[0])

    def set(self, rank, index, **values):
        return lambda rows, results: rows[rank][index].update(values)

    def test_no_trace(self):
        self.expect("a rank has no trace", lambda rows, results: rows[1].clear())

    def test_unidentified(self):
        self.expect("1 of ", self.set(1, 5, **dict.fromkeys(fake_ring.FIELDS[11:], "-")))
        self.expect("the first: rank 1, line 7: ", self.set(1, 5, **dict.fromkeys(fake_ring.FIELDS[11:], "-")))

    def test_gap(self):
        self.expect("transfer is not 5 of ", lambda rows, results: rows[2].pop(5))

    def test_repeated_transfer(self):
        self.expect("transfer is not 6 of ", lambda rows, results: rows[2].insert(6, rows[2][5]))

    def test_early_end(self):
        self.expect("the collective ended after 3 of 4 transfers", lambda rows, results: rows[0].pop())

    def test_transfers_change(self):
        self.expect("transfer is not 3 of ", self.set(0, 3, transfers="800"))

    def test_transfers_that_are_no_loops(self):
        self.expect("not a multiple of 8", self.set(0, 0, transfers="6"))

    def test_wrong_phase(self):
        for index, value in ((2, {"stage": "0"}), (4, {"reducing": "1"}), (8, {"loop": "0"}), (1, {"slice": "0"}),
                             (3, dict.fromkeys(gpu_trace.Phase._fields, "-"))):
            with self.subTest(index=index):
                self.expect("phase is not loop=", self.set(1, index, **value))
                self.expect(f"rank 1, line {index + 2}: ", self.set(1, index, **value))

    def test_a_reduce_scatter_always_reduces(self):
        def change(rows, results):
            next(row for row in rows[0] if row["func"] == "ReduceScatter")["reducing"] = "0"
        self.expect("phase is not loop=0 stage=0 slice=0 reducing=1", change)

    def test_wrong_bytes(self):
        self.expect("B sent, not ", self.set(0, 0, bytes="2097152"))

    def test_bytes_that_vanish_within_the_rounding(self):
        self.expect("all ranks sent ", lambda rows, results: rows[0][0].update(bytes=str(int(rows[0][0]["bytes"]) - 4)))

    def test_wrong_total(self):
        def change(rows, results):
            for row in rows[1]:
                row["total_bytes"] = "8192" if row["func"] == "AllGather" else row["total_bytes"]
        self.expect("not total_bytes=4096 ranks=3 as rank 0 has: rank 1", change)

    def test_a_rank_that_does_not_take_part(self):
        def change(rows, results):
            rows[2][:] = [row for row in rows[2] if row["func"] != "AllGather"]
        self.expect("2 of 3 ranks sent", change)

    def test_ranks(self):
        self.expect("ranks is not 3", self.set(0, 7, ranks="2"))
        self.expect("ranks is not 3", self.set(0, 7, ranks="4"), "split")

    def test_guards_differ(self):
        self.expect("setNetAttr and the profiler differ", self.set(0, 9, op="ReduceScatter"))
        self.expect("setNetAttr and the profiler differ", self.set(0, 9, algo="Tree"))
        self.expect("setNetAttr and the profiler differ", self.set(0, 9, proto="LL"))

    def test_ll128(self):
        self.expect("LL128, which the tuner must forbid", self.set(0, 9, proto="LL128", coll_proto="LL128"), "defaults")

    def test_numbers_with_a_hole(self):
        def change(rows, results):
            for row in sum(rows, []):
                if row["func"] == "ReduceScatter" and row["number"] == "2":
                    row["number"] = "5"
        self.expect(f"rank 0: ReduceScatter of comm {COMM} has no number 2, between 0 and 5", change)

    def test_numbers_that_go_back(self):
        def change(rows, results):
            for row in rows[0]:
                if row["func"] == "AllReduce":
                    row["number"] = str(1 - int(row["number"]))
        self.expect("number after 1 on this channel", change)

    def test_numbers_that_differ_between_ranks(self):
        def change(rows, results):
            for row in rows[1]:
                row["number"] = str(int(row["number"]) + 10)
        self.expect("rank 0 has 2 numbers from 0, rank 1 2 from 10", change)

    def test_local_numbers(self):
        self.expect("local_number is not 0", self.set(0, 4, local_number="1"))
        self.expect("local_number is not 1", self.set(0, 4, local_number="0"), "graph")

    def test_collectives_that_are_not_in_the_trace(self):
        self.expect("its program made 2", lambda rows, results: results.append(made("AllReduce", 1 << 20, 3, 2)))


if __name__ == "__main__":
    unittest.main()
