"""gemmctl without a server: what is wrong is said at once, in one line."""

import socket
import subprocess
import time
import unittest

import numpy as np

from gemmctl_cases import Folder, UNAVAILABLE, USAGE


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


if __name__ == "__main__":
    unittest.main()
