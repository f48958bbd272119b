"""gemmctl as a program: what it says, how it ends and what it leaves behind."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np

import gemmd_process
from gemmd_process import gemmctl

DIGITS = (pathlib.Path(__file__).resolve().parents[2] /
          "client/examples/digits/digits.npy")
FAILED, USAGE, UNAVAILABLE, DEADLINE, REJECTED = 1, 2, 3, 4, 5


class Folder(unittest.TestCase):
    """A folder with a.npy (5 x 7), b.npy (7 x 3) and what a test adds."""

    def setUp(self):
        seed = int.from_bytes(os.urandom(4), "little")
        print("seed", seed)
        self.random = np.random.default_rng(seed)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # Who gemmctl says it is; another user in each test.
        os.environ["XDG_STATE_HOME"] = str(self.folder / "state")
        self.a = self.save("a.npy", self.matrix(5, 7))
        self.b = self.save("b.npy", self.matrix(7, 3))

    def matrix(self, rows, cols):
        return self.random.uniform(-1, 1, (rows, cols)).astype(np.float32)

    def save(self, name, array):
        np.save(self.folder / name, array)
        return array

    def gemmctl(self, *arguments, **options):
        return gemmctl(*arguments, cwd=self.folder, **options)

    def assert_fails(self, result, code, *words):
        """One line on stderr with these words, nothing on stdout."""
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Agemmctl: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, result.stderr)

    def assert_no_output(self):
        left = {path.name for path in self.folder.iterdir()
                if path.name.startswith(("c.npy", ".c"))}
        self.assertEqual(left, set())


class WithoutServerTest(Folder):
    """What is wrong here is found here, before any connection is tried."""

    def assert_refused(self, arguments, *words):
        result = self.gemmctl("multiply", *arguments, "-o", "c.npy",
                              "--server", "127.0.0.1:1")
        self.assert_fails(result, USAGE, *words)
        self.assert_no_output()

    def test_missing_file(self):
        self.assert_refused(["a.npy", "x.npy"], "x.npy", "no such file")

    def test_empty_file(self):
        (self.folder / "x.npy").touch()
        self.assert_refused(["x.npy", "b.npy"], "x.npy", "empty")

    def test_truncated_file(self):
        whole = (self.folder / "a.npy").read_bytes()
        (self.folder / "x.npy").write_bytes(whole[:-1])
        self.assert_refused(["x.npy", "b.npy"], "truncated", "139 bytes",
                            "wanted 140")

    def test_truncated_header(self):
        whole = (self.folder / "a.npy").read_bytes()
        (self.folder / "x.npy").write_bytes(whole[:50])
        self.assert_refused(["x.npy", "b.npy"], "truncated")

    def test_not_a_matrix_file(self):
        (self.folder / "x.npy").write_text("1,2\n3,4\n")
        self.assert_refused(["x.npy", "b.npy"], "not a .npy file")

    def test_other_types(self):
        for dtype in ("f8", "f2", "i4", "u1", "c8", "?", "M8[s]"):
            array = np.zeros((5, 7), dtype)
            self.save("x.npy", array)
            name = {"M8[s]": "<M8[s]"}.get(dtype, array.dtype.name)
            self.assert_refused(["x.npy", "b.npy"], name,
                                "wanted is float32", ".astype('float32')")

    def test_other_ranks(self):
        self.save("x.npy", np.zeros(7, np.float32))
        self.assert_refused(["x.npy", "b.npy"], "one dimension",
                            ".reshape(1, 7)", ".reshape(7, 1)")
        for shape in ((), (1, 5, 7)):
            self.save("x.npy", np.zeros(shape, np.float32))
            self.assert_refused(["x.npy", "b.npy"], "dimensions")

    def test_shapes_that_do_not_fit(self):
        self.assert_refused(["b.npy", "a.npy"], "do not fit", "7 x 3", "5 x 7")
        self.assert_refused(["a.npy", "a.npy"], "do not fit", "a.npy is 5 x 7",
                            "with --transpose-b")
        self.assert_refused(["a.npy", "b.npy", "--transpose-b"],
                            "without --transpose-b")

    def test_c_of_another_shape(self):
        self.save("x.npy", self.matrix(3, 5))
        self.assert_refused(["a.npy", "b.npy", "--c", "x.npy", "--beta", "1"],
                            "x.npy is 3 x 5", "product is 5 x 3")

    def test_c_and_beta_go_together(self):
        self.save("x.npy", self.matrix(5, 3))
        self.assert_refused(["a.npy", "b.npy", "--beta", "1"], "without --c")
        self.assert_refused(["a.npy", "b.npy", "--c", "x.npy"],
                            "without --beta")

    def test_flags_that_do_not_exist(self):
        self.assert_refused(["a.npy", "b.npy", "--nope"], "--nope", "--help")
        self.assert_fails(self.gemmctl("frobnicate"), USAGE, "frobnicate")
        self.assert_fails(self.gemmctl(), USAGE, "command", "multiply")

    def test_values_that_cannot_be(self):
        for flag, value in (("--alpha", "x"), ("--precision", "fp8"),
                            ("--timeout", "-1"), ("--timeout", "soon"),
                            ("--connections", "0"), ("--retries", "-1")):
            self.assert_refused(["a.npy", "b.npy", flag, value], flag)
        for shape in ("x", "1x2", "1x2x3x4", "-1"):
            self.assert_fails(self.gemmctl("bench", "--shape=" + shape), USAGE,
                              "--shape")

    def test_missing_arguments(self):
        result = self.gemmctl("multiply", "a.npy", "b.npy")
        self.assert_fails(result, USAGE, "--output")

    def test_output_that_cannot_be(self):
        result = self.gemmctl("multiply", "a.npy", "b.npy", "-o", "no/c.npy")
        self.assert_fails(result, USAGE, "no/c.npy", "No such file")
        (self.folder / "dir").mkdir()
        result = self.gemmctl("multiply", "a.npy", "b.npy", "-o", "dir")
        self.assert_fails(result, USAGE, "dir is a directory")
        for output, reason in (("", "-o is empty"),
                               ("/proc/c.npy", "cannot write /proc/c.npy"),
                               ("no\x1b[31m/c.npy", "no\\x1b[31m/c.npy")):
            result = self.gemmctl("multiply", "a.npy", "b.npy", "-o", output)
            self.assert_fails(result, USAGE, reason)
            self.assertNotIn("\x1b", result.stderr)

    def test_addresses_that_cannot_be(self):
        for address in ("", "nowhere", "localhost:0", "localhost:99999",
                        "unix:"):
            result = self.gemmctl("health", "--server", address)
            self.assert_fails(result, USAGE, "address")

    def test_no_server_at_the_address(self):
        with socket.socket() as taken:  # bound, and nobody listens
            taken.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            for command in (["multiply", "a.npy", "b.npy", "-o", "c.npy"],
                            ["info"], ["kernels"], ["health"], ["bench"]):
                begin = time.monotonic()
                result = self.gemmctl(*command, "--server", address)
                self.assert_fails(result, UNAVAILABLE, address,
                                  "refused", "check that gemmd runs")
                self.assertLess(time.monotonic() - begin, 3)
        self.assert_no_output()

    def test_completion_is_a_script_that_completes(self):
        script = self.gemmctl("completion").stdout

        def complete(*words):
            line = " ".join(f"'{word}'" for word in ("gemmctl", *words))
            result = subprocess.run(
                ["bash", "-c", f"{script}\nCOMP_WORDS=({line}) "
                 f"COMP_CWORD={len(words)}\n_gemmctl\n"
                 "printf '%s\\n' \"${COMPREPLY[@]}\""],
                capture_output=True, text=True, cwd=self.folder, check=True)
            self.assertEqual(result.stderr, "")
            return result.stdout.split()

        self.assertEqual(complete("mul"), ["multiply"])
        self.assertIn("--concurrency", complete("bench", "--c"))
        self.assertNotIn("--concurrency", complete("multiply", "--c"))
        self.assertIn("--server", complete("info", "--s"))
        self.assertEqual(complete("multiply", "a."), ["a.npy"])
        self.assertEqual(complete("bench", "--operands", "resident-"),
                         ["resident-b"])

    def test_bench_flags_that_contradict_or_cannot_be(self):
        (self.folder / "bad").write_text("16 -1\n")
        for flags in (["--rate", "5", "--concurrency", "2"], ["--poisson"],
                      ["--count", "5", "--duration", "1s"],
                      ["--csv", "--json"], ["--concurrency", "4:1:x2"],
                      ["--concurrency", "0"], ["--rate", "1:9:x1"],
                      ["--operands", "nowhere"], ["--verify", "2"],
                      ["--shape-file", "bad"], ["--shape-file", "nosuch"]):
            result = self.gemmctl("bench", *flags)
            self.assert_fails(result, USAGE)

    def test_help_and_version(self):
        for arguments in (["--help"], ["multiply", "--help"], ["--version"]):
            result = self.gemmctl(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertIn("gemmctl", result.stdout)
            self.assertEqual(result.stderr, "")


class WithServerTest(Folder):
    @classmethod
    def setUpClass(cls):
        cls.socket = f"/tmp/gemmctl_test.{os.getpid()}.sock"
        cls.server = gemmd_process.Server("--unix-socket", cls.socket)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ask(self, *arguments, **options):
        return self.gemmctl(*arguments, "--server", self.server.address,
                            **options)

    def multiply(self, *arguments):
        """The product, and what --json told of it."""
        result = self.ask("multiply", *arguments, "-o", "c.npy", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        product = np.load(self.folder / "c.npy")
        (self.folder / "c.npy").unlink()
        return product, json.loads(result.stdout)

    def assert_close(self, product, expected):
        self.assertEqual(product.dtype, np.float32)
        self.assertEqual(product.shape, expected.shape)
        self.assertTrue(np.isfinite(product).all())
        error = np.abs(product - expected).max()
        self.assertLessEqual(error, 1e-5 * np.abs(expected).max())

    def test_the_digits(self):
        digits = np.load(DIGITS)
        product, report = self.multiply(DIGITS, DIGITS, "--transpose-b")
        self.assertEqual(report["rows"], 1797)
        self.assertEqual(report["cols"], 1797)
        # Sums of integers below 2^24: there is one right answer.
        expected = digits.astype(np.int64) @ digits.astype(np.int64).T
        self.assertTrue(np.array_equal(product, expected))

    def test_the_report(self):
        result = self.ask("multiply", "a.npy", "b.npy", "-o", "c.npy")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "")  # talk goes to stderr
        for word in ("c.npy: 5 x 3", "kernel", "device", "decode", "queue",
                     "compute", "encode", "elapsed"):
            self.assertIn(word, result.stderr)
        _, report = self.multiply("a.npy", "b.npy")
        self.assertEqual(report["k"], 7)
        self.assertEqual(report["batch_size"], 1)
        self.assertGreater(report["elapsed_seconds"], 0)
        self.assertGreater(report["stage_seconds"]["compute"], 0)

    def test_every_transpose_and_file_order(self):
        expected = self.a.astype(np.float64) @ self.b
        for ta in (False, True):
            for tb in (False, True):
                for order in "CF":
                    a = self.a.T if ta else self.a
                    b = self.b.T if tb else self.b
                    self.save("x.npy", np.array(a, order=order))
                    self.save("y.npy", np.array(b, order=order))
                    flags = ["--transpose-a"] * ta + ["--transpose-b"] * tb
                    product, _ = self.multiply("x.npy", "y.npy", *flags)
                    self.assert_close(product, expected)

    def test_alpha_beta_and_c_in_both_orders(self):
        c = self.matrix(5, 3)
        expected = (-0.5 * (self.a.astype(np.float64) @ self.b) +
                    2.0 * c.astype(np.float64))
        for order in "CF":
            self.save("x.npy", np.array(c, order=order))
            product, _ = self.multiply("a.npy", "b.npy", "--alpha", "-0.5",
                                       "--beta", "2", "--c", "x.npy")
            self.assert_close(product, expected)

    def test_matrices_with_nothing_in_them(self):
        for m, n, k in ((0, 3, 2), (3, 0, 2), (3, 2, 0)):
            self.save("x.npy", np.zeros((m, k), np.float32))
            self.save("y.npy", np.zeros((k, n), np.float32))
            product, _ = self.multiply("x.npy", "y.npy")
            self.assertTrue(np.array_equal(product, np.zeros((m, n))))

    def test_a_unix_socket_and_several_connections(self):
        result = self.gemmctl("multiply", "a.npy", "b.npy", "-o", "c.npy",
                              "--server", "unix:" + self.socket,
                              "--connections", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_close(np.load(self.folder / "c.npy"),
                          self.a.astype(np.float64) @ self.b)

    def test_every_available_kernel_by_its_name(self):
        kernels = json.loads(self.ask("kernels", "--json").stdout)
        available = [k["name"] for k in kernels if k["available"]]
        self.assertIn("openblas", available)
        self.assertIn("reference", available)
        for name in available:
            product, report = self.multiply("a.npy", "b.npy", "--kernel", name)
            self.assertEqual(report["kernel"], name)
            self.assert_close(product, self.a.astype(np.float64) @ self.b)

    def test_an_unknown_kernel_is_rejected_with_the_known_ones(self):
        result = self.ask("multiply", "a.npy", "b.npy", "-o", "c.npy",
                          "--kernel", "warp_drive")
        self.assert_fails(result, REJECTED, "warp_drive", "openblas")
        self.assert_no_output()

    def test_a_failure_keeps_the_older_output(self):
        (self.folder / "c.npy").write_text("older")
        result = self.ask("multiply", "a.npy", "b.npy", "-o", "c.npy",
                          "--kernel", "warp_drive")
        self.assertEqual(result.returncode, REJECTED)
        self.assertEqual((self.folder / "c.npy").read_text(), "older")

    def test_an_output_that_cannot_be_written(self):
        result = self.ask("multiply", "a.npy", "b.npy", "-o", "/dev/full")
        self.assert_fails(result, FAILED, "/dev/full", "No space left")

    def test_the_deadline(self):
        self.save("x.npy", self.matrix(900, 900))
        result = self.ask("multiply", "x.npy", "x.npy", "-o", "c.npy",
                          "--kernel", "reference", "--timeout", "5ms")
        self.assert_fails(result, DEADLINE, self.server.address, "5ms")
        self.assert_no_output()

    def test_info(self):
        text = self.ask("info")
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn("backend cpu", text.stdout)
        info = json.loads(self.ask("info", "--json").stdout)
        self.assertEqual(info["backend"], "cpu")
        self.assertGreater(info["devices"][0]["memory_bytes"], 0)
        self.assertEqual(info["limits"]["max_inline_bytes"], 256 << 20)

    def test_kernels_is_a_table_with_a_reason_for_what_cannot_run(self):
        kernels = json.loads(self.ask("kernels", "--json").stdout)
        table = self.ask("kernels").stdout.splitlines()
        self.assertRegex(table[0], "KERNEL +BACKEND +PRECISION +AVAILABLE")
        self.assertEqual(len(table), 1 + len(kernels))
        for kernel in kernels:
            self.assertTrue(kernel["description"])
            self.assertEqual(kernel["available"],
                             not kernel["unavailable_reason"])

    def test_health(self):
        result = self.ask("health")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "SERVING\n")
        result = self.ask("health", "--service", "no.such.Service")
        self.assert_fails(result, REJECTED)

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

    def test_a_matrix_is_uploaded_used_and_brought_back(self):
        uploaded = self.ask("upload", "b.npy", "--id", "weights")
        self.assertEqual((uploaded.returncode, uploaded.stdout),
                         (0, "weights\n"), uploaded.stderr)
        listed = json.loads(self.ask("matrices", "--json").stdout)
        self.assertEqual([(x["id"], x["rows"], x["cols"]) for x in listed],
                         [("weights", 7, 3)])
        self.assertIn("7 x 3", self.ask("matrices").stdout)
        # A file times the matrix, to a file and to the server.
        for output in ("c.npy", "@product"):
            result = self.ask("multiply", "a.npy", "@weights", "-o", output)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.ask("download", "product", "-o", "d.npy")
        c = np.load(self.folder / "c.npy")
        np.testing.assert_allclose(c, self.a @ self.b, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(c, np.load(self.folder / "d.npy"))
        # Added to what is there.
        result = self.ask("multiply", "a.npy", "@weights", "-o", "@product",
                          "--c", "@product", "--beta", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.ask("download", "product", "-o", "d.npy")
        np.testing.assert_allclose(np.load(self.folder / "d.npy"), c + c,
                                   rtol=1e-5, atol=1e-5)
        self.assertEqual(self.ask("delete", "weights", "product").returncode, 0)
        self.assertEqual(json.loads(self.ask("matrices", "--json").stdout), [])

    def test_a_matrix_in_fortran_order_is_the_same_matrix(self):
        self.save("x.npy", np.asfortranarray(self.b))
        identifier = self.ask("upload", "x.npy").stdout.strip()
        self.ask("download", identifier, "-o", "y.npy")
        np.testing.assert_array_equal(np.load(self.folder / "y.npy"), self.b)
        self.ask("delete", identifier)

    def test_matrices_that_are_not_there(self):
        for command in (["download", "nosuch", "-o", "c.npy"],
                        ["delete", "nosuch"],
                        ["multiply", "a.npy", "@nosuch", "-o", "c.npy"]):
            self.assert_fails(self.ask(*command), REJECTED, "nosuch")
        self.assert_fails(self.ask("upload", "b.npy", "--id", "no spaces"),
                          USAGE, "no spaces", "A-Za-z0-9")
        self.ask("upload", "b.npy", "--id", "taken")
        self.assert_fails(self.ask("upload", "a.npy", "--id", "taken"),
                          REJECTED, "taken")
        self.assert_fails(
            self.ask("multiply", "b.npy", "@taken", "-o", "c.npy"), USAGE,
            "do not fit")
        self.ask("delete", "taken")
        self.assert_no_output()

    def test_another_user_sees_nothing(self):
        self.ask("upload", "b.npy", "--id", "mine")
        mode = (self.folder / "state/gemmd/client-id").stat().st_mode
        self.assertEqual(mode & 0o777, 0o600)
        other = self.ask("matrices", "--json", "--client-id", "0" * 32)
        self.assertEqual(json.loads(other.stdout), [])
        self.assert_fails(self.ask("matrices", "--client-id", "me"), USAGE,
                          "32 hex digits")
        self.ask("delete", "mine")


class ServerThatGoesTest(Folder):
    def test_a_server_that_comes_back_is_given_its_matrices_again(self):
        path = str(self.folder / "gemmd.sock")
        flags = ["--unix-socket", path, "--shared-memory=true"]
        for where in ("resident-b", "shared-memory"):
            server = gemmd_process.Server(*flags)
            try:
                bench = subprocess.Popen(
                    [gemmd_process.BIN.absolute() / "gemmctl", "bench",
                     "--server", "unix:" + path, "--operands", where,
                     "--shape", "32", "--duration", "5s", "--warmup", "100ms",
                     "--verify", "1", "--keep-going", "--json"],
                    stdout=subprocess.PIPE, text=True)
                time.sleep(1.5)
                server.signal(signal.SIGKILL)
                server.stop()
                server = gemmd_process.Server(*flags)
                report = json.loads(bench.communicate()[0])
            finally:
                server.stop()
            # Lost with the server: what was in flight. Nothing is NOT_FOUND.
            self.assertLessEqual(set(report["errors"]), {"UNAVAILABLE"})
            self.assertLessEqual(report["failed"], 10)
            self.assertGreater(report["requests"], 10)
            self.assertEqual(report["verified"], report["requests"])

    def test_a_server_that_stops_reading_does_not_hold_it_past_the_deadline(
            self):
        self.save("x.npy", np.zeros((3000, 3000), np.float32))
        path = f"/tmp/gemmctl_stopped.{os.getpid()}.sock"
        with socket.socket(socket.AF_UNIX) as stopped:
            stopped.bind(path)
            self.addCleanup(os.unlink, path)
            stopped.settimeout(30)
            stopped.listen(1)
            # A greeting of HTTP/2 with every window wide open, then nothing.
            accepted = []
            greeter = threading.Thread(
                target=lambda: accepted.append(self.greet(stopped)))
            greeter.start()
            begin = time.monotonic()
            result = self.gemmctl("multiply", "x.npy", "x.npy", "-o", "c.npy",
                                  "--timeout", "1", "--server", "unix:" + path)
            self.assertLess(time.monotonic() - begin, 8)
            greeter.join()
            accepted[0].close()
        self.assert_fails(result, DEADLINE, path)
        self.assert_no_output()

    @staticmethod
    def greet(listener):
        connection, _ = listener.accept()
        wide = (1 << 30).to_bytes(4, "big")
        connection.sendall(b"\0\0\6\4\0\0\0\0\0" + b"\0\4" + wide +  # SETTINGS
                           b"\0\0\4\x08\0\0\0\0\0" + wide)  # WINDOW_UPDATE
        return connection

    def test_a_server_that_ends_while_it_is_measured(self):
        with gemmd_process.server() as server:
            timer = threading.Timer(1.0, server.signal, [signal.SIGKILL])
            timer.start()
            result = self.gemmctl("bench", "--shape", "64", "--duration", "30",
                                  "--server", server.address)
            timer.join()
        self.assert_fails(result, UNAVAILABLE, server.address)


if __name__ == "__main__":
    unittest.main()
