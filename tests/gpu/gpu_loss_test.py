#!/usr/bin/env python3
"""The judge of training steps under loss: right reports, and one of each kind of deviation."""

import copy
import unittest

import fake_training
import gpu_loss

SIZE = 8 << 20


def reports(ranks, lossy=True, steps=12):
    return [{"results": [copy.deepcopy(fake_training.row(steps, SIZE, ranks, lossy))]} for _ in range(ranks)]


class RightSteps(unittest.TestCase):
    def test_with_and_without_loss(self):
        for ranks in (2, 3):
            for lossy in (True, False):
                with self.subTest(ranks=ranks, lossy=lossy):
                    wrong, seen = gpu_loss.judge(reports(ranks, lossy), 0.01 if lossy else 0)
                    self.assertEqual(wrong, "")
                    self.assertEqual(len(seen["missing_bytes"]), ranks)
                    self.assertEqual(seen["missing_bytes"][0] > 0, lossy)

    def test_what_it_says(self):
        _, seen = gpu_loss.judge(reports(2), 0.01)
        self.assertEqual(gpu_loss.text(seen), "12 steps, replicas bit-identical after each; 98304 B missing of "
                                              "100663296 B eligible (0.10 %)")
        page = "\n".join(gpu_loss.lines([{"name": "a", "loss": seen, "loss_deviation": ""}, {"name": "b"}]))
        self.assertIn("- missing by rank: [49152, 49152] B of", page)
        self.assertIn("charged is 0.000488 of its size", page)
        self.assertNotIn("## What was lost: b", page)

    def test_an_element_that_lost_twice_was_charged_twice(self):
        changed = reports(3)
        for report in changed:
            record = report["results"][0]["training"]["steps"][4]
            record["lacking"][1] -= 512
            record["lacking_elements"] -= 512
        self.assertEqual(gpu_loss.judge(changed, 0.01)[0], "")


class Deviations(unittest.TestCase):
    """Each changes right reports in one way."""

    def expect(self, message, change, tolerance=0.01, ranks=3):
        changed = reports(ranks)
        change([report["results"][0]["training"] for report in changed])
        self.assertIn(message, gpu_loss.judge(changed, tolerance)[0])

    def on_all(self, step, **values):
        return lambda trainings: [training["steps"][step].update(values) for training in trainings]

    def entry(self, rank, step, **values):
        return lambda trainings: trainings[rank]["ledger"]["collectives"][step].update(values)

    def test_a_rank_without_steps(self):
        for broken in (None, {"results": []}, {"results": [{"bytes": 4}]}):
            self.assertEqual(gpu_loss.judge([*reports(2)[:1], broken], 0.01), ("a rank wrote no training steps", None))
        self.expect("the ranks took [12, 12, 11] steps", lambda trainings: trainings[2]["steps"].pop())

    def test_replicas_that_differ_at_one_step_only(self):
        self.expect("replicas differ after step 5: digest of the sums is 0000000000000006 on rank 0, bad on rank 2",
                    lambda trainings: trainings[2]["steps"][5].update(sums="bad"))
        self.expect("replicas differ after step 11: digest of the parameters is ",
                    lambda trainings: trainings[1]["steps"][11].update(parameters="bad"))

    def test_sums_that_cannot_be(self):
        self.expect("step 3: 7 elements are no sum of contributions", self.on_all(3, unreadable_elements=7))
        self.expect("step 3: 7 elements lack every rank's contribution", self.on_all(3, empty_elements=7))

    def test_steps_that_lead_nowhere(self):
        self.expect("did not solve the problem", lambda trainings: trainings[0].update(distance=[1000.0, 101.0]))
        self.expect("did not solve the problem", lambda trainings: trainings[0].update(distance=[1000.0, float("nan")]))

    def test_something_missing_where_nothing_may_be(self):
        self.expect("B of contributions are missing, more than 0 of", lambda trainings: None, tolerance=0)

    def test_nothing_missing_where_the_network_lost(self):
        self.assertIn("rank 0: nothing is missing, though", gpu_loss.judge(reports(2, lossy=False), 0.01)[0])

    def test_more_than_the_ledger_of_a_collective(self):
        self.expect("rank 1, step 2: 83886081 B of contributions", self.entry(1, 2, contributions=83886081))

    def test_more_than_p_of_the_eligible(self):
        def change(trainings):
            trainings[2]["ledger"]["totals"]["eligible_bytes"] = 100
        self.expect("rank 2: 98304 B are missing of 100 B that were eligible, more than 0.01", change)

    def test_eligible_beyond_the_reduce_scatter(self):
        self.expect("rank 0, step 7: 8388608 B were eligible, more than", self.entry(0, 7, eligible_bytes=SIZE))

    def test_ranges_that_do_not_add_up(self):
        for key in ("bytes", "contributions"):
            def change(trainings, name=key):
                trainings[1]["ledger"]["collectives"][0]["ranges"][name] += 1
            self.expect("rank 1, step 0: the missing ranges are ", change)

    def test_a_stage_that_only_an_all_gather_has(self):
        def change(trainings):
            trainings[0]["ledger"]["collectives"][1]["ranges"]["last_stage"] = 2
        self.expect("rank 0, step 1: something is missing of stage 2, a reduce-scatter's last is 1", change)

    def test_collectives_that_are_not_the_programs(self):
        self.expect("the plugin took the collective for", self.entry(0, 0, function=3))
        self.expect("the plugin took the collective for", self.entry(0, 0, local_number=1))
        self.expect("the plugin took the collective for", self.entry(0, 0, total_bytes=4))
        self.expect("knows of 11 collectives, the program made 12",
                    lambda trainings: trainings[0]["ledger"]["collectives"].pop())
        self.expect("knows of 12 collectives", self.entry(0, 3, comm="other"))
        self.expect("not one after the other", self.entry(0, 3, number=40))

    def test_missing_bytes_of_no_collective(self):
        def change(trainings):
            trainings[0]["ledger"]["totals"]["missing_bytes"] += 1
        self.expect("but not of the collectives that it lists", change)

    def test_sums_that_lack_what_no_plugin_lost(self):
        def change(trainings):
            for training in trainings:
                training["steps"][6]["lacking"][0] += 1
        self.expect("step 6: sums lack ", change, ranks=2)

        def elements(trainings):
            for training in trainings:
                training["steps"][6]["lacking_elements"] += 1
        self.expect("step 6: sums lack ", elements)

    def test_sums_that_lack_less_than_was_charged(self):
        def change(trainings):
            for training in trainings:
                training["steps"][0]["lacking"][1] -= 1
        self.expect("step 0: sums lack ", change, ranks=2)


if __name__ == "__main__":
    unittest.main()
