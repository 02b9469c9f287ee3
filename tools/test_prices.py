"""The prices' judgement: what is reported, and what is not."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench" / "prices"))
import prices  # noqa: E402, its folder is on the path only now


class Judgement(unittest.TestCase):
    def test_a_slope_leaves_out_what_goes_on_anyway(self):
        points = [(rate, 7e6 + 1500 * rate) for rate in prices.TICKS_PER_SECOND]
        self.assertAlmostEqual(prices.slope(points), 1500)

    def test_rounds_that_agree_are_reported_with_their_spread(self):
        row = prices.judged([1000, 1010, 990, 1005, 995], 0.1)
        self.assertEqual(row["ns"], 1000)
        self.assertAlmostEqual(row["spread"], 0.01)
        self.assertIsNone(row["cause"])

    def test_rounds_that_disagree_are_not(self):
        row = prices.judged([500, 900, 1000, 1300, 2000], 0.1)
        self.assertIsNone(row["ns"])
        self.assertIn("spread over 40% of the median", row["cause"])

    def test_too_few_rounds_and_negative_prices_are_not(self):
        row = prices.judged([1000] * 4, 0.1, ["the sender kept 80% of its pace"])
        self.assertIsNone(row["ns"])
        self.assertIn("4 of 5 rounds count, the last because the sender kept 80%", row["cause"])
        self.assertEqual(prices.judged([-1.0] * 5, 0.1)["cause"], "less than what the clock takes")

    def test_a_run_that_loses_messages_or_its_pace_does_not_count(self):
        run = {"ticks": 1000, "seconds": 1.0, "cpu_ns": 1, "received": 4000}
        self.assertIsNone(prices.fault_of(run, "datagram", 4, 1000))
        lost = prices.fault_of({**run, "received": 3999}, "datagram", 4, 1000)
        self.assertEqual(lost, "3999 of 4000 messages arrived")
        late = prices.fault_of({**run, "seconds": 2.0}, "datagram", 4, 1000)
        self.assertEqual(late, "the sender kept 50% of its pace")


if __name__ == "__main__":
    unittest.main()
