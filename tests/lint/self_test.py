#!/usr/bin/env python3
"""Each lint is shown a tree with a violation planted in it, and must see that one; and a clean tree, and must be quiet."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import clang_format
import core_purity
import getenv_only_in_config
import house_rules
import include_rules
import kernel_objects
import one_thread
import options_named
import shell_scripts
import size_limits
import thin_plugin
import tree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="clustar-lint-")
        self.addCleanup(shutil.rmtree, self.root)

    def plant(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as stream:
            stream.write(text)
        return full

    def assert_caught(self, lint, *fragments):
        """Exactly one violation, and it holds every fragment."""
        found = list(lint.check(self.root))
        self.assertEqual(len(found), 1, found)
        for fragment in fragments:
            self.assertIn(fragment, found[0])

    def assert_clean(self, lint):
        self.assertEqual(list(lint.check(self.root)), [])


class IncludeRules(Planted):
    def test_clean(self):
        self.plant("transport/api/a.cc", '#include "transport/api/a.h"\n#include "transport/base/b.h"\n#include <vector>\n')
        self.plant("bench/conform/c.cc", '#include "nccl_plugin/abi/types.h"\n#include "bench/proxy/net_plugin.h"\n')
        self.plant("mlt/core/d.cc", '#include <cstdint>\n#include "transport/base/time.h"\n// steady_clock is not for us\n')
        self.assert_clean(include_rules)

    def test_core_must_not_know_the_packet_interface(self):
        self.plant("mlt/core/sender.cc", '#include <span>\n#include "transport/io/packet_io.h"\n')
        self.assert_caught(include_rules, "mlt/core/sender.cc:2:", "transport/io/packet_io.h")

    def test_core_must_not_start_threads(self):
        self.plant("coflow/core/sebf.cc", "#include <thread>\n")
        self.assert_caught(include_rules, "coflow/core/sebf.cc:1:", "<thread>")

    def test_core_must_not_open_sockets(self):
        self.plant("paraexpress/core/plan.cc", "#include <sys/socket.h>\n")
        self.assert_caught(include_rules, "sockets")

    def test_core_must_not_read_a_clock(self):
        self.plant("mlt/core/timer.cc", "\nauto t = std::chrono::steady_clock::now();\n")
        self.assert_caught(include_rules, "mlt/core/timer.cc:2:", "steady_clock")

    def test_nothing_of_ours_includes_tests_or_benches(self):
        self.plant("transport/tcp/nic.cc", '#include "bench/report/report.h"\n')
        self.assert_caught(include_rules, "transport/tcp/nic.cc:1:", "bench/report/report.h")

    def test_the_driver_knows_no_plugin(self):
        self.plant("bench/proxy/net_plugin.cc", '#include "nccl_plugin/exports.h"\n')
        self.assert_caught(include_rules, "nccl_plugin/exports.h")
        self.plant("bench/proxy/net_plugin.cc", '#include "transport/base/config.h"\n')
        self.assert_caught(include_rules, "transport/base/config.h")

    def test_third_party_stays_in_its_room(self):
        for header in ("boost/asio.hpp", "cuda_runtime_api.h", "infiniband/verbs.h", "CLI/CLI.hpp", "nlohmann/json.hpp"):
            self.plant("transport/api/queue.cc", f"#include <{header}>\n")
            self.assert_caught(include_rules, header)

    def test_includes_are_named_from_the_root(self):
        self.plant("transport/api/queue.cc", '#include "queue.h"\n')
        self.assert_caught(include_rules, "transport/api/queue.h")

    def test_a_folder_without_a_rule(self):
        self.plant("misc/helpers.cc", "\n")
        self.assert_caught(include_rules, "misc/helpers.cc", "no rule")


class CorePurity(Planted):
    def compile(self, name, text):
        source = self.plant(name + ".cc", text)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-fPIC", "-c", source, "-o", source + ".o"],
                       check=True)
        return source + ".o"

    def test_pure(self):
        pure = self.compile("pure", "#include <map>\n#include <string>\n#include <vector>\n"
                            "std::vector<int> f(std::map<int, std::string>& m) { return {m.at(3).empty() ? 1 : 2}; }\n")
        self.assertEqual(list(core_purity.check([pure])), [])

    def test_planted(self):
        for call, text in {
                "getenv": "#include <cstdlib>\nconst char* f() { return std::getenv(\"HOME\"); }\n",
                "steady_clock": "#include <chrono>\nlong f() { return std::chrono::steady_clock::now().time_since_epoch().count(); }\n",
                "socket": "#include <sys/socket.h>\nint f() { return socket(AF_INET, SOCK_DGRAM, 0); }\n",
                "thread": "#include <thread>\nvoid f() { std::thread([] {}).join(); }\n",
                "random_device": "#include <random>\nunsigned f() { return std::random_device{}(); }\n",
                "vprint": "#include <fmt/core.h>\nvoid f(int x) { fmt::print(\"{}\", x); }\n",
                "printf": "#include <cstdio>\nvoid f(int x) { std::printf(\"%d\", x); }\n",
        }.items():
            found = list(core_purity.check([self.compile("planted", text)]))
            self.assertTrue(any(call in line for line in found), f"{call}: {found}")

    def test_what_the_others_define_is_resolved(self):
        user = self.compile("user", "int helper();\nint f() { return helper(); }\n")
        helper = self.compile("helper", "int helper() { return 3; }\n")
        self.assertEqual(len(list(core_purity.check([user]))), 1)
        self.assertEqual(list(core_purity.check([user, helper])), [])
        self.assertEqual(list(core_purity.check([user], [helper])), [])

    def test_an_empty_object_proves_nothing(self):
        self.assertEqual(len(list(core_purity.check([self.compile("empty", "\n")]))), 1)


class GetenvOnlyInConfig(Planted):
    def test_clean(self):
        self.plant("transport/base/config.cc", 'auto* value = ::secure_getenv("CLUSTAR_IO");\n')
        self.plant("bench/cli/main.cc", 'auto* value = std::getenv("HOME");\n')
        self.plant("transport/tcp/nic.cc", '// getenv is in config.cc\nauto text = "getenv"; int my_getenv_count;\n')
        self.assert_clean(getenv_only_in_config)

    def test_planted_read(self):
        self.plant("nccl_plugin/exports.cc", '\n\nauto* value = std::getenv("CLUSTAR_IO");\n')
        self.assert_caught(getenv_only_in_config, "nccl_plugin/exports.cc:3:", "getenv")

    def test_planted_change(self):
        self.plant("transport/base/config.cc", 'int x = setenv("NCCL_PROTO", "simple", 1);\n')
        self.assert_caught(getenv_only_in_config, "setenv")


class SizeLimits(Planted):
    def test_limits(self):
        self.plant("transport/base/a.cc", "\n" * size_limits.FILE_LINES)
        self.plant("transport/base/a.h", "\n" * size_limits.HEADER_LINES)
        self.assert_clean(size_limits)
        self.plant("transport/base/a.cc", "\n" * (size_limits.FILE_LINES + 1))
        self.assert_caught(size_limits, "transport/base/a.cc", "501 lines")

    def test_header(self):
        self.plant("transport/base/a.h", "\n" * (size_limits.HEADER_LINES + 1))
        self.assert_caught(size_limits, "transport/base/a.h", "251 lines")


class HouseRules(Planted):
    def setUp(self):
        super().setUp()
        for folder in ("transport", "transport/base"):
            self.plant(folder + "/README.md", "What it is for.\n")

    def test_clean(self):
        self.plant("transport/base/a.h", "#pragma once\n")
        self.plant("transport/base/a.cc", '#include "transport/base/a.h"\n')
        self.plant("tests/README.md", "See [base](../transport/base/README.md#top) and [NCCL](https://github.com/NVIDIA/nccl).\n")
        self.plant("tests/unit/a_test.cc", 'GTEST_SKIP() << "no IPv6 here";\nGTEST_SKIP()\n    << "two lines";\n')
        self.assert_clean(house_rules)

    def test_missing_readme(self):
        self.plant("transport/api/a.cc", "\n")
        self.assert_caught(house_rules, "transport/api/README.md")

    def test_long_readme(self):
        self.plant("transport/README.md", "\n" * 200)
        self.assert_caught(house_rules, "one page")

    def test_dead_link(self):
        self.plant("transport/README.md", "[gone](../docs/gone.md)\n")
        self.assert_caught(house_rules, "docs/gone.md")

    def test_machine_path(self):
        self.plant("transport/base/a.cc", "// see /" + "work/main\n")
        self.assert_caught(house_rules, "transport/base/a.cc:1:", "machine")

    def test_marker(self):
        self.plant("transport/base/a.cc", "\n// TO" + "DO: later\n")
        self.assert_caught(house_rules, "transport/base/a.cc:2:")

    def test_words_that_stopped_a_reader(self):
        for phrase in ("made an" + "ew", "the losses of l" + "ate", "This is for w" + "ho asks", "Who" + "ever holds the lock",
                       "adds them him" + "self", "the port, el" + "se 0", "it waits for e" + "ver", "fast in the m" + "ean"):
            with self.subTest(phrase):
                self.plant("transport/base/a.h", "#pragma once\n// " + phrase + "\n")
                self.assert_caught(house_rules, "transport/base/a.h:2:", "write: ")

    def test_words_that_stop_nobody(self):
        self.plant("transport/base/a.h", "#pragma once\n// A renewed lease is late; what else is for whom?\n"
                   "inline int f(bool b) { if (b) { return 1; } else { return 2; } }\n")
        self.plant("transport/base/README.md", "The meaning of a mean; indeed, elsewhere: forever and the beginning of all.\n")
        self.assert_clean(house_rules)

    def test_skip_without_reason(self):
        self.plant("tests/README.md", "Tests.\n")
        self.plant("tests/unit/a_test.cc", "GTEST_SKIP()" + ";\n")
        self.assert_caught(house_rules, "GTEST_SKIP")

    def test_unused_using_declaration(self):
        self.plant("transport/base/a.cc", "using std::chrono::seconds;\nusing mlt::Mode;\nMode mode;  // in seconds\n")
        self.assert_caught(house_rules, "transport/base/a.cc:1:", "seconds; is not used")
        self.plant("transport/base/a.cc", "using mlt::Mode;\nMode mode;\n")
        self.assert_clean(house_rules)

    def test_a_temporary_file_of_all_tests(self):
        self.plant("tests/README.md", "Tests.\n")
        self.plant("tests/unit/a_test.cc", "auto a = ::testing::TempDir() + \"a\";\n")
        self.assert_caught(house_rules, "tests/unit/a_test.cc:1:", "temp_path")

    def test_header_guard_and_own_header(self):
        self.plant("transport/base/a.h", "\n")
        self.assert_caught(house_rules, "#pragma once")
        self.plant("transport/base/a.h", "#pragma once\n")
        self.plant("transport/base/a.cc", "#include <vector>\n")
        self.assert_caught(house_rules, "transport/base/a.h", "first")

    def test_file_name(self):
        self.plant("transport/base/BadName.cc", "\n")
        self.assert_caught(house_rules, "lower_snake")


class ShellScripts(Planted):
    HEAD = "#!/usr/bin/env bash\nset -euo pipefail\n"

    def plant(self, path, text):
        os.chmod(super().plant(path, text), 0o755)

    def test_clean(self):
        self.plant("scripts/a", self.HEAD + 'echo "$1"\n')
        self.assert_clean(shell_scripts)

    def test_going_on_after_an_error(self):
        self.plant("scripts/a", "#!/usr/bin/env bash\necho\n")
        self.assert_caught(shell_scripts, "set -euo pipefail")

    def test_not_executable(self):
        self.plant(".ci/run", self.HEAD)
        os.chmod(os.path.join(self.root, ".ci/run"), 0o644)
        self.assert_caught(shell_scripts, "not executable")

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed; scripts/setup installs it")
    def test_shellcheck(self):
        self.plant("scripts/a", self.HEAD + "rm -f $1\n")
        self.assert_caught(shell_scripts, "scripts/a:3:", "SC2086")


class ThinPlugin(Planted):
    EXPORT = 'extern "C" { __attribute__((visibility("default"))) extern int table_v1;\nint table_v1 = 3; }\n'

    def link(self, text, *flags):
        source = self.plant("plugin.cc", text)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", source, "-o",
                        source + ".so", *flags], check=True)
        return list(thin_plugin.check(source + ".so", {"table_v1"}))

    def test_thin(self):
        self.assertEqual(self.link(self.EXPORT, "-static-libstdc++", "-static-libgcc"), [])

    def test_planted(self):
        stream = "#include <iostream>\nvoid f() { std::cout << 1; }\n"
        exported = '__attribute__((visibility("default"))) int stray() { return 1; }\n'
        unique = '__attribute__((visibility("default"))) inline int& g() { static int x = 1; return x; }\nint h() { return g(); }\n'
        for expected, text, flags in (
                ("needs libstdc++", self.EXPORT + stream, ()),
                ("needs libz", self.EXPORT, ("-Wl,--no-as-needed", "-l:libz.so.1")),
                ("exports _Z5strayv", self.EXPORT + exported, ()),
                ("UNIQUE symbol", self.EXPORT + unique, ()),
                ("does not export table_v1", "", ()),
                ("RUNPATH", self.EXPORT, ("-Wl,-rpath,/opt/lib",)),
                ("executable stack", self.EXPORT, ("-Wl,-z,execstack",)),
        ):
            if "libz" in expected and not os.path.exists("/lib/" + os.uname().machine + "-linux-gnu/libz.so.1"):
                continue
            found = self.link(text, *flags)
            self.assertTrue(any(expected in line for line in found), f"{expected}: {found}")

    def test_a_module_may_need_what_it_is_for(self):
        self.link(self.EXPORT + "#include <iostream>\nvoid f() { std::cout << 1; }\n", "-static-libgcc")
        library = os.path.join(self.root, "plugin.cc.so")
        self.assertEqual(list(thin_plugin.check(library, {"table_v1"}, {"libstdc++.so.6"})), [])
        self.assertNotEqual(list(thin_plugin.check(library, {"table_v1"}, {"libother.so.6"})), [])


@unittest.skipUnless(shutil.which("clang-format"), "clang-format is not installed; scripts/setup installs it")
class ClangFormat(Planted):
    def test_planted(self):
        shutil.copy(os.path.join(ROOT, ".clang-format"), self.root)
        self.plant("transport/base/a.cc", "int f() { return 1; }\n")
        self.assert_clean(clang_format)
        self.plant("transport/base/b.cc", "int  f( ){return 1;}\n")
        self.assert_caught(clang_format, "transport/base/b.cc")


@unittest.skipUnless(shutil.which("clang-tidy"), "clang-tidy is not installed; scripts/setup installs it")
class ClangTidy(Planted):
    CLEAN = "#include <string>\nstd::string f(std::string text) { return text; }\n"
    MOVED = "#include <string>\n#include <utility>\nstd::string sink(std::string);\n" \
            "auto f(std::string text) { auto other = sink(std::move(text)); return text + other; }\n"

    def tidy(self, *names, cache=None):
        database = [{"directory": self.root, "file": os.path.join(self.root, f"transport/{name}.cc"),
                     "command": f"c++ -std=c++20 -fno-gnu-unique -o {name}.o -c transport/{name}.cc"} for name in names or "a"]
        self.plant("build/compile_commands.json", json.dumps(database))
        done = subprocess.run([sys.executable, os.path.join(HERE, "clang_tidy.py"), "--root", self.root, "--build",
                               os.path.join(self.root, "build")], capture_output=True, text=True,
                              env={**os.environ, "XDG_CACHE_HOME": os.path.join(cache or self.root, "cache")})
        return done.returncode, done.stdout

    def test_another_clone_remembers(self):
        with tempfile.TemporaryDirectory() as home:
            for clone, unchanged in (("one", 0), ("other", 1)):
                self.root = os.path.join(home, clone)
                os.makedirs(self.root)
                shutil.copy(os.path.join(ROOT, ".clang-tidy"), self.root)
                self.plant("transport/a.cc", self.CLEAN)
                self.assertEqual(self.tidy(cache=home), (0, f"clang-tidy: 1 files, {unchanged} unchanged since they were clean, 0 bad\n"))

    def test_planted(self):
        shutil.copy(os.path.join(ROOT, ".clang-tidy"), self.root)
        self.plant("transport/a.cc", self.CLEAN)
        self.assertEqual(self.tidy(), (0, "clang-tidy: 1 files, 0 unchanged since they were clean, 0 bad\n"))
        self.assertIn("1 unchanged", self.tidy()[1])
        self.plant("transport/a.cc", self.MOVED)
        code, text = self.tidy()
        self.assertEqual(code, 1, text)
        self.assertIn("bugprone-use-after-move", text)
        self.assertEqual(self.tidy()[0], 1, "a bad file must not be remembered as clean")

    def test_files_run_as_one(self):
        shutil.copy(os.path.join(ROOT, ".clang-tidy"), self.root)
        local = "namespace {{ int local = {}; }}\nint {}() {{ return local; }}\n"
        for name, text in (("a", self.CLEAN), ("b", local.format(1, "b")), ("c", local.format(2, "c"))):
            self.plant(f"transport/{name}.cc", text)
        self.assertEqual(self.tidy("a", "b"), (0, "clang-tidy: 2 files, 0 unchanged since they were clean, 0 bad\n"))
        self.assertEqual(self.tidy("a", "b", "c"), (0, "clang-tidy: 3 files, 2 unchanged since they were clean, 0 bad\n"))
        self.plant("transport/a.cc", self.CLEAN + "\n")
        self.plant("transport/b.cc", local.format(3, "b"))
        self.plant("transport/c.cc", local.format(4, "c"))
        code, text = self.tidy("a", "b", "c")  # b and c clash
        self.assertEqual((code, text.splitlines()[-1]), (0, "clang-tidy: 3 files, 0 unchanged since they were clean, 0 bad"))
        self.plant("transport/a.cc", self.MOVED)
        self.plant("transport/b.cc", "\n")
        code, text = self.tidy("a", "b")
        self.assertEqual(code, 1, text)
        self.assertIn("transport/a.cc (", text)
        self.assertIn("2 files, 0 unchanged since they were clean, 1 bad", text)

    def test_files_that_cmake_joined_are_each_looked_at(self):
        import clang_tidy
        unity = os.path.join(self.root, "build/x.dir/Unity/unity_0_cxx.cxx")
        sources = [os.path.join(self.root, f"transport/{name}.cc") for name in "ab"]
        self.plant("build/x.dir/Unity/unity_0_cxx.cxx", "".join(f'#include "{source}"\n' for source in sources))
        self.plant("build/compile_commands.json", json.dumps([
            {"directory": self.root, "file": unity, "command": f"c++ -DA -o unity_0.o -c {unity}"},
            {"directory": self.root, "file": os.path.join(self.root, "build/y.dir/Unity/unity_0_cxx.cxx"), "command": "c++"},
            {"directory": self.root, "file": "transport/c.cc", "command": "c++ -o c.o -c transport/c.cc"}]))
        found = clang_tidy.load(self.root, os.path.join(self.root, "build"))
        self.assertEqual([(path, command) for path, _, command in found],
                         [(f"transport/{name}.cc", ["c++", "-DA", "-o", f"transport/{name}.cc.o", "-c", source])
                          for name, source in zip("ab", sources)] +
                         [("transport/c.cc", ["c++", "-o", "c.o", "-c", "transport/c.cc"])])

    def test_a_changed_header_counts(self):
        shutil.copy(os.path.join(ROOT, ".clang-tidy"), self.root)
        self.plant("transport/a.h", "#pragma once\nstruct A {};\n")
        self.plant("transport/a.cc", '#include "transport/a.h"\nA a;\n')
        self.plant("build/compile_commands.json", "[]")
        import clang_tidy
        marks = []
        for body in ("struct A {};\n", "struct A { int x; };\n"):
            self.plant("transport/a.h", "#pragma once\n" + body)
            marks.append(self.mark("transport/a.cc", []))
        self.assertNotEqual(*marks)

    def mark(self, path, flags, toolchain=""):
        import clang_tidy
        for cached in (clang_tidy.headers_of, clang_tidy.found):
            cached.cache_clear()
        outside = clang_tidy.Outside(self.root, [(path, self.root, ["c++", *flags])])
        outside.toolchain += toolchain
        return clang_tidy.fingerprint(self.root, path, ["c++", *flags], b"", outside)

    def test_a_generated_header_counts(self):
        self.plant("transport/a.cc", '#include "made.h"\n#include <other.h>\n')
        flags, marks = ["-I", os.path.join(self.root, "build/made"), f"-isystem{self.root}/build/other"], set()
        for file, text in (("made/unrelated.h", ""), ("made/made.h", "int a;\n"), ("made/made.h", "int b;\n"),
                           ("other/other.h", "int c;\n"), ("other/other.h", "int d;\n")):
            self.plant("build/" + file, text)
            marks.add(self.mark("transport/a.cc", flags))
        self.assertEqual(len(marks), 5)
        self.plant("build/made/unrelated.h", "int e;\n")
        self.assertIn(self.mark("transport/a.cc", flags), marks)

    @unittest.skipUnless(shutil.which("dpkg-query"), "dpkg-query is not here")
    def test_packages_count_by_their_versions(self):
        import clang_tidy
        self.plant("transport/a.cc", "#include <string>\n#include <stdio.h>\n")
        outside = clang_tidy.Outside(self.root, [("transport/a.cc", self.root, ["c++"])])
        installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libc6-dev"], capture_output=True, text=True).stdout
        self.assertRegex(outside.versions["/usr/include/stdio.h"], f"libc6-dev\\S* {re.escape(installed)}$")
        self.assertIn("libstdc++-", outside.toolchain)
        same, other = self.mark("transport/a.cc", []), self.mark("transport/a.cc", [], "another")
        self.assertEqual(self.mark("transport/a.cc", []), same)
        self.assertNotEqual(same, other)
        real = clang_tidy.versions_of
        self.addCleanup(setattr, clang_tidy, "versions_of", real)
        clang_tidy.versions_of = lambda paths: ({path: version + "+1" for path, version in real(paths)[0].items()}, real(paths)[1])
        self.assertNotEqual(self.mark("transport/a.cc", []), same)


class OneThread(Planted):
    def test_planted(self):
        for text, caught in (("#include <mutex>\nint main() { static std::mutex m; std::lock_guard lock(m); }\n", False),
                             ("#include <thread>\nint main() { std::thread([] {}).join(); }\n", True),
                             ("#include <pthread.h>\nint main() { return pthread_create(nullptr, nullptr, nullptr, nullptr); }\n", True)):
            source = self.plant("main.cc", text)
            subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-w", source, "-o", source + ".out"], check=True)
            self.assertEqual(bool(list(one_thread.check([source + ".out"]))), caught, text)


class KernelObjects(unittest.TestCase):
    TABLE = "avx2_kernels.cc.o:\n0000000000000000 D n::kAvx2Kernels\n0000000000000010 t n::(anonymous namespace)::kernel\n"

    def test_planted(self):
        self.assertEqual(list(kernel_objects.check(self.TABLE + "\nreduce.cc.o:\n0000000000000000 W std::min(int)\n")), [])
        for more in ("0000000000000020 W int const& std::max<int>(int const&, int const&)\n", "0000000000000020 T n::helper()\n"):
            self.assertEqual(len(list(kernel_objects.check(self.TABLE + more))), 1, more)
        self.assertEqual(len(list(kernel_objects.check("avx2_kernels.cc.o:\n"))), 1)
        self.assertEqual(len(list(kernel_objects.check("reduce.cc.o:\n"))), 1)


class OptionsNamed(Planted):
    OPTIONS = {"commands": [{"name": "perf", "options": [{"names": ["-h", "--help"]}, {"names": ["--rounds"]}], "commands": []},
                            {"name": "coflow", "options": [], "commands": [
                                {"name": "replay", "options": [{"names": ["--report"]}], "commands": []}]}]}

    def test_planted(self):
        text = ("Run `clustar perf --rounds 2 --help`; --round is another's, as in `perf --round`.\n"
                "    clustar coflow replay x \\\n      --html y  # --no\nclustar perf -- --other\n")
        self.plant("docs/a.md", text)
        self.plant("scripts/demo", '"$clustar" coflow replay --report "$x/y" --policy z\nrun "$clustar" perf --round 2\n')
        self.assertEqual([line.split(";")[0] for line in options_named.check(self.root, self.OPTIONS)],
                         ["docs/a.md:2: clustar coflow replay has no option --html",
                          "scripts/demo:1: clustar coflow replay has no option --policy",
                          "scripts/demo:2: clustar perf has no option --round"])

    def test_the_trees_calls_are_seen(self):
        seen = sum(len(list(options_named.calls(tree.read(ROOT, name)))) for name in tree.files(ROOT) if name.endswith(".md"))
        self.assertGreater(seen, 150)


class Tree(Planted):
    def test_code_only(self):
        text = 'int a; // getenv\n/* b\nc */ auto s = "getenv\\""; char q = \'"\'; auto r = R"(x"y)"; long n = 1\'000;\n'
        code = tree.code_only(text)
        self.assertEqual(code.count("\n"), text.count("\n"))
        self.assertNotIn("getenv", code)
        self.assertIn("1'000", code)

    def test_files_outside_git(self):
        self.plant("a/b.cc", "\n")
        self.plant("build/c.cc", "\n")
        self.assertEqual(tree.files(self.root), ["a/b.cc"])


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=1)
    skipped = [reason for _, reason in program.result.skipped]
    if skipped:
        print("SKIP: " + "; ".join(sorted(set(skipped))))
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(tree.SKIP if skipped and len(skipped) == program.result.testsRun else 0)
