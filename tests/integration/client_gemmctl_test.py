"""gemmctl as a program: what it says, how it ends and what it leaves behind."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import unittest

import numpy as np

import gemmd_process
from gemmctl_cases import (DEADLINE, FAILED, REJECTED, UNAVAILABLE, USAGE, Folder,
                           WithServer)

DIGITS = (pathlib.Path(__file__).resolve().parents[2] /
          "client/examples/digits/digits.npy")


class WithServerTest(WithServer):
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
