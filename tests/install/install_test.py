"""`cmake --install`: the tree works after it was moved, names no path of the build, and each file has one component."""

import argparse
import functools
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
COMPONENTS = ("plugin", "tools", "dev", "torch")  # the last where PyTorch is


def run(*command, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def files_in(folder):
    return {os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names}


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def bytes_of(path):
    with open(path, "rb") as file:
        text = file.read()
    return gzip.decompress(text) if path.endswith(".gz") else text


class Tree(unittest.TestCase):
    source = build = cmake = python = folder = tree = ""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="install-", dir=cls.build)
        first = os.path.join(cls.folder, "first")
        run(cls.cmake, "--install", cls.build, "--prefix", first)
        # From here on nothing is where it was installed.
        cls.tree = os.path.join(cls.folder, "moved", "to here")
        os.makedirs(os.path.dirname(cls.tree))
        os.rename(first, cls.tree)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, *names):
        return os.path.join(self.tree, *names)

    @functools.cached_property
    def elf_files(self):
        found = [self.path(name) for name in sorted(files_in(self.tree)) if is_elf(self.path(name))]
        self.assertIn(self.path("lib", "libnccl-net-clustar.so"), found)
        self.assertIn(self.path("bin", "clustar"), found)
        return found

    def by_path(self, *command, **variables):
        """Runs as a shell would that finds the program by PATH, elsewhere."""
        environment = {**os.environ, **variables, "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        return run(*command, cwd="/", env=environment)

    def test_each_file_belongs_to_one_component(self):
        seen = []
        for component in COMPONENTS:
            prefix = os.path.join(self.folder, component)
            run(self.cmake, "--install", self.build, "--prefix", prefix, "--component", component)
            seen += files_in(prefix)
        self.assertEqual(sorted(seen), sorted(files_in(self.tree)))

    def test_no_path_of_the_build_is_left(self):
        for name in files_in(self.tree):
            text = bytes_of(self.path(name))
            for what in (self.source, self.build, self.folder):
                self.assertNotIn(what.encode(), text, name)

    def test_libraries_are_searched_nowhere_but_where_the_loader_does(self):
        for path in self.elf_files:
            self.assertNotRegex(run("readelf", "-d", path), "RPATH|RUNPATH", path)

    def test_every_binary_names_the_same_commit(self):
        version = self.by_path("clustar", "--version")
        named = re.fullmatch(r"clustar (\d+\.\d+\.\d+)(?: \(commit ([^)]+)\))?\n", version)
        self.assertTrue(named, version)
        note = json.dumps({"type": "clustar", "name": "clustar", "version": named[1], "commit": named[2] or ""},
                          separators=(",", ":"))
        for path in self.elf_files:
            self.assertIn(note, run("readelf", "-n", path), path)

    def test_a_moved_tree_trains_over_its_own_plugin(self):
        output = self.by_path("clustar", "train", "--model", "lr", "--ranks", "2", "--epochs", "1", "--examples", "500",
                              "--json", "-")
        self.assertIn(os.path.join(os.path.realpath(self.tree), "lib", "libnccl-net-clustar.so"), output)

    def test_the_moved_plugin_finds_its_modules(self):
        if not os.path.exists(self.path("lib", "libclustar-crypto.so")):
            self.skipTest("built without OpenSSL: there is no libclustar-crypto.so")
        key = os.path.join(self.folder, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("6b" * 32 + "\n")
        command = ("clustar", "perf", "--plugin", self.path("lib", "libnccl-net-clustar.so"), "--test", "latency",
                   "--bytes", "8", "--rounds", "5", "--seconds", "0.05")
        self.by_path(*command, CLUSTAR_PSK_FILE=key)
        module = self.path("lib", "libclustar-crypto.so")
        os.rename(module, module + ".away")
        self.addCleanup(os.rename, module + ".away", module)
        with self.assertRaisesRegex(AssertionError, "libclustar-crypto.so"):
            self.by_path(*command, CLUSTAR_PSK_FILE=key)

    def has_torch(self):
        return os.path.isdir(self.path("lib", "python3", "dist-packages", "clustar_torch"))

    def test_the_backend_of_torch_distributed_sums_and_finds_its_modules(self):
        if not self.has_torch():
            self.skipTest("built without PyTorch (Debian's packages: python3-torch libtorch-dev pybind11-dev)")
        program = ("import os, sys, clustar_torch, torch, torch.distributed as dist\n"
                   "dist.init_process_group('clustar', init_method='file://' + sys.argv[2], rank=int(sys.argv[1]), world_size=2)\n"
                   "one = torch.full((1000,), float(sys.argv[1]) + 1)\n"
                   "dist.all_reduce(one)\n"
                   "print(clustar_torch.__file__, one.sum().item())\n")
        key = os.path.join(self.folder, "torch-key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("6b" * 32 + "\n")
        folder = self.path("lib", "python3", "dist-packages")
        variables = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1", "CLUSTAR_SOCKET_IFNAME": "lo"}
        if os.path.exists(self.path("lib", "libclustar-crypto.so")):
            variables["CLUSTAR_PSK_FILE"] = key
        met = os.path.join(self.folder, "met")
        ranks = [subprocess.Popen([self.python, "-c", program, str(rank), met], env=variables, cwd="/", text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
        said = [rank.communicate(timeout=100)[0] for rank in ranks]
        self.assertEqual(said, [os.path.join(folder, "clustar_torch", "__init__.py") + " 3000.0\n"] * 2)

    def test_the_doctor_says_whether_torch_can_use_the_backend(self):
        command = ("clustar", "doctor", "torch", "--python", self.python)
        variables = {"CLUSTAR_SOCKET_IFNAME": "lo", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""}
        if not self.has_torch():
            with self.assertRaisesRegex(AssertionError, "It cannot"):
                self.by_path(*command, **variables)
            return
        folder = os.path.realpath(self.path("lib", "python3", "dist-packages"))
        with self.assertRaisesRegex(AssertionError, re.escape(f"fix: export PYTHONPATH={folder}")):
            self.by_path(*command, **variables)
        variables["PYTHONPATH"] = folder
        self.assertIn("It can: ", self.by_path(*command, **variables))
        variables["CLUSTAR_TRANSPORT"] = "none"
        with self.assertRaisesRegex(AssertionError, "failed +group +clustar: .*none"):
            self.by_path(*command, **variables)

    def test_another_project_finds_the_package(self):
        build = os.path.join(self.folder, "consumer")
        run(self.cmake, "-S", os.path.join(HERE, "consumer"), "-B", build, f"-DCMAKE_PREFIX_PATH={self.tree}")
        run(self.cmake, "--build", build)
        version = self.by_path("clustar", "--version").split()[1]
        for program in ("consumer", "linked"):
            self.assertEqual(run(os.path.join(build, program)).strip(), version)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            root = f"127.0.0.1:{free.getsockname()[1]}"
        environment = {**os.environ, "CLUSTAR_SOCKET_IFNAME": "lo"}
        ranks = [subprocess.Popen([os.path.join(build, "example"), str(rank), "4", root], env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(4)]
        said = [rank.communicate(timeout=100)[0] for rank in ranks]
        self.assertEqual(said, [f"rank {rank} of 4: each element is 10\n" for rank in range(4)])

    def test_pkg_config_finds_the_header_and_the_plugin(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": self.path("lib", "pkgconfig")}
        # The tree's name has a space in it, which pkg-config writes for a shell.
        flags = run("pkg-config", "--cflags", "clustar", env=environment).strip()
        run("sh", "-c", f"cc {flags} -fsyntax-only '{os.path.join(HERE, 'consumer', 'linked.c')}'")
        plugin = run("pkg-config", "--variable=plugin", "clustar", env=environment).strip().replace("\\ ", " ")
        self.assertTrue(os.path.samefile(plugin, self.path("lib", "libnccl-net-clustar.so")))

    def commands(self, tree, words):
        yield words, tree
        for each in tree["commands"]:
            yield from self.commands(each, words + [each["name"]])

    def test_every_command_has_a_page_with_each_of_its_options(self):
        tree = json.loads(self.by_path("clustar", "--option-tree"))
        for words, command in self.commands(tree, ["clustar"]):
            page = bytes_of(self.path("share", "man", "man1", "-".join(words) + ".1.gz")).decode().replace("\\-", "-")
            self.assertIn(".SH SYNOPSIS\n", page)
            for option in command["options"]:
                for name in option["names"]:
                    self.assertIn(f"\\fB{name}\\fR", page, words)
        self.assertTrue(os.path.exists(self.path("share", "man", "man1", "clustar-sim.1.gz")))

    def completed(self, *words):
        script = self.path("share", "bash-completion", "completions", words[0])
        text = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _clustar_complete; printf "%s\\n" "${COMPREPLY[@]}"'
        return run("bash", "-c", text, "bash", script, *words).split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(self.completed("clustar", "con"), ["conform"])
        self.assertEqual(self.completed("clustar", "coflow", "re"), ["replay"])
        self.assertIn("--generate", self.completed("clustar", "coflow", "replay", "--"))
        self.assertEqual(self.completed("clustar", "coflow", "replay", "--rules", "coflowsim-"), ["coflowsim-stock"])
        self.assertEqual(self.completed("clustar", "train", "--model", "cnn-"), ["cnn-wide"])
        self.assertEqual(self.completed("clustar-sim", "--exp"), ["--experiment"])

    def test_the_bill_of_materials_has_every_library_that_is_linked(self):
        documents = [json.loads(bytes_of(self.path("share", "doc", f"clustar-{component}", "sbom.spdx.json")))
                     for component in COMPONENTS if self.has_torch() or component != "torch"]
        for document in documents:
            self.assertEqual(document["spdxVersion"], "SPDX-2.3")
            known = {package["SPDXID"] for package in document["packages"]}
            self.assertLessEqual({each["relatedSpdxElement"] for each in document["relationships"]}, known)
        if shutil.which("dpkg-query") is None:
            return
        plugin, tools, *_ = [{package["name"]: package.get("versionInfo", "") for package in document["packages"]}
                            for document in documents]
        libc = run("dpkg-query", "-W", "-f", "${Version}", "libc6").strip()
        self.assertEqual((plugin["libc6"], tools["libc6"]), (libc, libc))
        if os.path.exists(self.path("lib", "libclustar-fec.so")):
            self.assertIn("libisal2", plugin)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("source", "build", "cmake", "python"):
        parser.add_argument("--" + name, required=True)
    options, rest = parser.parse_known_args()
    Tree.source, Tree.build, Tree.cmake = os.path.realpath(options.source), os.path.realpath(options.build), options.cmake
    Tree.python = options.python
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
