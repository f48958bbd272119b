"""What the tests of gemmctl have in common: a folder with matrices, and one with
a server besides."""

import json
import os
import pathlib
import tempfile
import unittest

import numpy as np

import gemmd_process
from gemmd_process import gemmctl

FAILED, USAGE, UNAVAILABLE, DEADLINE, REJECTED = 1, 2, 3, 4, 5


class GemmctlTestCase(unittest.TestCase):
    """What gemmctl promises of every failure."""

    def assert_fails(self, result, code, *words):
        """One line on stderr with these words, nothing on stdout."""
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Agemmctl: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, result.stderr)


class Folder(GemmctlTestCase):
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

    def assert_no_output(self):
        left = {path.name for path in self.folder.iterdir()
                if path.name.startswith(("c.npy", ".c"))}
        self.assertEqual(left, set())


class WithServer(Folder):
    """One server for the whole class."""

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
