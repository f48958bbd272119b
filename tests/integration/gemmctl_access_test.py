"""gemmctl shows who it is: tokens that it mints, against a server that asks."""

import os
import pathlib
import stat
import tempfile
import unittest

import numpy as np

import gemmd_process
from gemmctl_cases import REJECTED, UNAVAILABLE, USAGE, GemmctlTestCase
from gemmd_process import gemmctl


class AccessTest(GemmctlTestCase):
    """A server that knows `trainer` (compute,info) and `watcher` (info)."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        os.environ["XDG_STATE_HOME"] = str(cls.folder / "state")
        entries = ""
        for name, roles in (("trainer", "compute,info"), ("watcher", "info")):
            minted = gemmctl("token", name, roles, "-o", cls.token(name))
            assert minted.returncode == 0, minted.stderr
            entries += minted.stdout
        (cls.folder / "access").write_text(entries)
        server = gemmd_process.Server(
            f"--auth-token-file={cls.folder / 'access'}")
        cls.addClassCleanup(server.stop)
        cls.server = server
        np.save(cls.folder / "a.npy", np.ones((3, 3), np.float32))

    @classmethod
    def token(cls, name):
        return cls.folder / f"{name}.token"

    def gemmctl(self, *arguments, token=None):
        access = ["--token-file", self.token(token)] if token else []
        return gemmctl(*arguments, "--server", self.server.address, *access,
                       cwd=self.folder)

    def test_a_minted_token_opens_every_command_of_its_roles(self):
        for command in (["info"], ["kernels"], ["health"], ["matrices"],
                        ["multiply", "a.npy", "a.npy", "-o", "c.npy"],
                        ["upload", "a.npy", "--id", "a"],
                        ["download", "a", "-o", "back.npy"], ["delete", "a"],
                        ["bench", "--shape", "8", "--count", "10"]):
            result = self.gemmctl(*command, token="trainer")
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_secret_is_in_the_file_alone(self):
        path = self.token("other")
        minted = gemmctl("token", "other", "compute", "-o", path)
        secret = path.read_text().strip().removeprefix("other.")
        self.assertEqual(len(secret), 64)
        self.assertNotIn(secret, minted.stdout + minted.stderr)
        self.assertRegex(minted.stdout, r"\Aother compute sha256:[0-9a-f]{32}:"
                                        r"[0-9a-f]{64}\n\Z")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        again = gemmctl("token", "other", "compute", "-o", path)
        self.assert_fails(again, USAGE, str(path), "File exists")

    def test_names_and_roles_that_cannot_be(self):
        for arguments, word in ((["a b", "info"], "a b"), (["", "info"], "name"),
                                (["a", "root"], "root"), (["a", ""], "role"),
                                (["a", "info,"], "role")):
            path = self.folder / "never"
            result = gemmctl("token", *arguments, "-o", path)
            self.assert_fails(result, USAGE, word)
            self.assertFalse(path.exists())

    def test_without_a_token_it_says_how_to_give_one(self):
        self.assert_fails(self.gemmctl("info"), REJECTED, "wants a token",
                          "--token-file", "--tls-cert")
        self.assertEqual(self.gemmctl("health").returncode, 0)

    def test_an_unknown_token_is_refused(self):
        gemmctl("token", "stranger", "info", "-o", self.token("stranger"))
        self.assert_fails(self.gemmctl("info", token="stranger"), REJECTED,
                          "accepts", "SIGHUP")

    def test_a_missing_role_is_named(self):
        self.assertEqual(self.gemmctl("info", token="watcher").returncode, 0)
        self.assert_fails(self.gemmctl("matrices", token="watcher"), REJECTED,
                          "watcher", "compute", "--auth-token-file")

    def test_files_that_are_no_tokens(self):
        self.assert_fails(self.gemmctl("info", token="missing"), USAGE,
                          "missing.token", "No such file")
        self.token("long").write_text("two words")
        self.assert_fails(self.gemmctl("info", token="long"), USAGE,
                          "long.token", "one token and nothing else")

    def test_a_token_does_not_leave_this_host_in_plaintext(self):
        result = gemmctl("info", "--server", "gemmd.example.com:50051",
                         "--token-file", self.token("trainer"))
        self.assert_fails(result, USAGE, "plaintext", "TLS")

    def test_tls_where_there_is_none_is_said_in_one_line(self):
        result = self.gemmctl("health", "--tls", "--retries", "0")
        self.assert_fails(result, UNAVAILABLE, "does not speak TLS")
        result = self.gemmctl("health", "--tls-ca", "nothing.pem")
        self.assert_fails(result, USAGE, "nothing.pem", "No such file")


if __name__ == "__main__":
    unittest.main(verbosity=2)
