"""packaging/commit.cmake: which commit a build names, from a checkout, a tarball, or neither."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packaging")
IDENTITY = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]


def git(folder, *arguments):
    return subprocess.run(["git", *IDENTITY, "-C", folder, *arguments], check=True, capture_output=True).stdout


class Commit(unittest.TestCase):
    cmake = "cmake"

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.source = os.path.join(self.folder, "source")
        self.output = os.path.join(self.folder, "commit.cc")
        os.makedirs(os.path.join(self.source, "packaging"))
        # In a tree that git archive made, the project's own has a commit by now.
        with open(os.path.join(self.source, "packaging", "archive_commit.txt"), "w", encoding="utf-8") as file:
            file.write("$Format:%H$\n")
        with open(os.path.join(self.source, ".gitattributes"), "w", encoding="utf-8") as file:
            file.write("packaging/archive_commit.txt export-subst\n")

    def named(self, given="", source=None):
        subprocess.run([self.cmake, f"-DSOURCE={source or self.source}", f"-DOUTPUT={self.output}", "-DVERSION=1.2.3",
                        f"-DGIVEN={given}", "-P", os.path.join(PACKAGING, "commit.cmake")], check=True, capture_output=True)
        with open(self.output, encoding="utf-8") as file:
            return file.read().split('clustar_commit[] = "')[1].split('"')[0]

    def commit(self, folder):
        git(folder, "init", "--quiet")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", "one")
        return git(folder, "rev-parse", "HEAD").decode()[:12]

    def test_a_checkout_names_its_commit_and_whether_files_changed(self):
        head = self.commit(self.source)
        self.assertEqual(self.named(), head)
        with open(os.path.join(self.source, ".gitattributes"), "a", encoding="utf-8") as file:
            file.write("\n")
        self.assertEqual(self.named(), head + ", changed")

    def test_the_file_is_written_only_when_the_commit_is_another(self):
        self.commit(self.source)
        self.named()
        os.utime(self.output, (1, 1))
        self.named()
        self.assertEqual(os.stat(self.output).st_mtime, 1)
        git(self.source, "commit", "--quiet", "--allow-empty", "--message", "two")
        self.named()
        self.assertNotEqual(os.stat(self.output).st_mtime, 1)

    def test_an_archive_by_git_names_its_commit(self):
        head = self.commit(self.source)
        unpacked = os.path.join(self.folder, "unpacked")
        os.makedirs(unpacked)
        subprocess.run(["tar", "-xC", unpacked], input=git(self.source, "archive", "HEAD"), check=True)
        self.assertEqual(self.named(source=unpacked), head)

    def test_a_tarball_in_another_repository_has_no_commit(self):
        with open(os.path.join(self.folder, "other"), "w", encoding="utf-8") as file:
            file.write("somebody else's")
        self.commit(self.folder)
        self.assertEqual(self.named(), "")

    def test_what_the_packager_gives_goes_first(self):
        self.commit(self.source)
        self.assertEqual(self.named(given="0123abcd"), "0123abcd")
        with self.assertRaises(subprocess.CalledProcessError):
            self.named(given='"; evil')


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", default="cmake")
    options, rest = parser.parse_known_args()
    if shutil.which("git") is None:
        print("SKIP: git is not installed")
        sys.exit(77)
    Commit.cmake = options.cmake
    unittest.main(argv=sys.argv[:1] + rest)
