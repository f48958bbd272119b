"""gemmctl bench as a program: what it counts and measures."""

import json
import time
import unittest

from gemmctl_cases import REJECTED, WithServer


class BenchTest(WithServer):
    def test_bench_counts_and_measures(self):
        result = self.ask("bench", "--shape", "33x17x65", "--count", "50",
                          "--concurrency", "4", "--warmup", "50ms", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")  # no progress off a terminal
        report = json.loads(result.stdout)
        self.assertEqual(report["requests"], 50)
        self.assertEqual((report["m"], report["n"], report["k"]), (33, 17, 65))
        latency = report["latency_seconds"]
        self.assertLessEqual(latency["p50"], latency["p99"])
        self.assertLessEqual(latency["p99"], latency["max"])
        self.assertLessEqual(sum(report["mean_stage_seconds"].values()),
                             latency["mean"])
        # tflops as JSON rounds it: nine digits.
        self.assertAlmostEqual(
            report["tflops"],
            2 * 33 * 17 * 65 * report["requests_per_second"] / 1e12, places=9)
        text = self.ask("bench", "--shape", "16", "--count", "5",
                        "--warmup", "1ms", "--transpose-a")
        for word in ("16 x 16 x 16", "products/s", "p99", "compute"):
            self.assertIn(word, text.stdout)

    def test_bench_runs_for_as_long_as_it_is_told(self):
        begin = time.monotonic()
        result = self.ask("bench", "--shape", "16", "--warmup", "100ms",
                          "--duration", "400ms", "--json")
        self.assertGreater(time.monotonic() - begin, 0.5)
        self.assertAlmostEqual(json.loads(result.stdout)["seconds"], 0.4,
                               delta=0.2)

    def test_bench_ends_at_an_error(self):
        result = self.ask("bench", "--kernel", "warp_drive")
        self.assert_fails(result, REJECTED, "warp_drive")


    def test_bench_steps_through_a_range(self):
        result = self.ask("bench", "--shape", "16", "--concurrency", "1:4:x2",
                          "--duration", "50ms", "--warmup", "10ms", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        steps = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([step["concurrency"] for step in steps], [1, 2, 4])
        text = self.ask("bench", "--shape", "16", "--concurrency", "1:2:+1",
                        "--duration", "50ms", "--warmup", "10ms").stdout
        self.assertRegex(text, r"CONCURRENCY.*\n +1 .*\n +2 ")
        table = self.ask("bench", "--shape", "16", "--concurrency", "1:2:+1",
                         "--duration", "50ms", "--warmup", "10ms",
                         "--csv").stdout
        head, *rows = [line.split(",") for line in table.splitlines()]
        self.assertEqual([row[head.index("concurrency")] for row in rows],
                         ["1", "2"])
        self.assertTrue(all(len(row) == len(head) for row in rows))

    def test_bench_keeps_an_open_loops_rate(self):
        for arrivals in ([], ["--poisson"]):
            result = self.ask("bench", "--shape", "8", "--rate", "100",
                              "--duration", "1.5s", "--warmup", "100ms",
                              "--json", *arrivals)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            # Six standard deviations of 150 random arrivals.
            self.assertAlmostEqual(report["requests"], 150, delta=74)
            self.assertEqual(report["rate"], 100)

    def test_bench_counts_what_an_overload_delays(self):
        # One in flight, asked for more than can be: later and later.
        result = self.ask("bench", "--shape", "128", "--rate", "50000",
                          "--max-in-flight", "1", "--duration", "500ms",
                          "--warmup", "10ms", "--json")
        report = json.loads(result.stdout)
        self.assertGreater(report["late"], 0)
        self.assertLess(report["requests"], 25000)
        # The wait counts, of which the server's stages know nothing.
        self.assertGreater(report["latency_seconds"]["p50"], 0.05)
        self.assertLess(sum(report["mean_stage_seconds"].values()),
                        report["latency_seconds"]["mean"])

    def test_bench_verifies_with_the_operands_anywhere(self):
        for where in ("inline", "resident-b", "resident"):
            result = self.ask("bench", "--shape", "40x50x60", "--count", "20",
                              "--operands", where, "--verify", "1",
                              "--warmup", "10ms", "--json", "--transpose-b")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual(report["operands"], where)
            self.assertEqual(report["verified"], 1 if where == "resident"
                             else 20)
        # What it used is dropped.
        self.assertEqual(json.loads(self.ask("matrices", "--json").stdout), [])

    def test_bench_draws_shapes_from_a_file(self):
        (self.folder / "shapes").write_text("# two\n8x9x10 3\n\n16 # one\n")
        result = self.ask("bench", "--shape-file", "shapes", "--count", "50",
                          "--warmup", "10ms", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        shapes = json.loads(result.stdout)["shapes"]
        self.assertEqual(shapes, [{"m": 8, "n": 9, "k": 10, "weight": 3},
                                  {"m": 16, "n": 16, "k": 16, "weight": 1}])

    def test_bench_waits_until_it_is_stable(self):
        result = self.ask("bench", "--shape", "16", "--stability", "100",
                          "--duration", "50ms", "--warmup", "10ms", "--json")
        report = json.loads(result.stdout)
        self.assertGreaterEqual(report["windows"], 3)
        result = self.ask("bench", "--shape", "16", "--stability", "0.001",
                          "--max-windows", "4", "--duration", "20ms",
                          "--warmup", "10ms", "--json")
        report = json.loads(result.stdout)
        self.assertEqual((report["windows"], report["stable"]), (4, False))


if __name__ == "__main__":
    unittest.main()
