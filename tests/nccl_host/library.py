"""NCCL's host objects and the emulated runtime, compiled and linked to libnccl.so.2."""

import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import alone
import kernel_symbols
import source

HERE = pathlib.Path(__file__).resolve().parent
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))

# Device code is NVCC's; ras/client.cc and param/ncclparam.cc are programs; enhcompat.cc is for a toolkit of another version;
# Windows has its own.
LEFT_OUT = ("src/device/", "src/ras/client.cc", "src/param/ncclparam.cc", "src/enhcompat.cc", "src/os/windows",
            "src/transport/net_ib_stub.cc", "src/transport/net_socket_stub.cc")

# -foptimize-strlen: what NCCL allocates and zeroes at once, tens of megabytes for each communicator's view of the
# machine, becomes calloc() as in its own -O3, which touches none of it.
# DOCA's two wrappers load verbs and CUDA at run time, as NCCL's own Makefile has it; NVTX draws time lines for a tool.
FLAGS = ["-std=c++17", "-O1", "-foptimize-strlen", "-fPIC", "-fvisibility=hidden", "-w", "-DPROFAPI", "-DDOCA_VERBS_USE_CUDA_WRAPPER",
         "-DDOCA_VERBS_USE_NET_WRAPPER", "-DNVTX_DISABLE", "-DNCCL_OS_LINUX", "-DCUDA_MAJOR=13", "-DCUDA_MINOR=0",
         "-include", "dlfcn.h"]
OWN_FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
# Folders that the library and its programs are made of.
PARTS = ("runtime", "kernels", "binding", "ranks", "perf", "scenarios")
# So that NCCL finds libnvidia-ml.so.1 beside itself, however a program found NCCL.
LINK_FLAGS = ["-Wl,-rpath,$ORIGIN"]


class Failed(Exception):
    """The library could not be built."""


def build(tree, folder, jobs):
    """The path of libnccl.so.2, built if it is not there yet."""
    if not (CUDA / "include/cuda_runtime.h").is_file():
        raise source.NotHere(f"no CUDA headers in {CUDA}/include; install the toolkit's cudart headers or set CUDA_HOME")
    target = folder / key(tree)
    result = target / "libnccl.so.2"
    # It is there last of all.
    if result.exists():
        return result
    with alone.in_folder(folder):
        if not result.exists():
            build_in(tree, folder, target, jobs)
    return result


def build_in(tree, folder, target, jobs):
    print(f"nccl-host: building NCCL {'.'.join(map(str, source.version(tree)))} with the emulated device in {target}",
          file=sys.stderr)
    # What NCCL's source gives does not change with the emulation, so it is kept apart.
    base = folder / f"objects-{key_of_nccl(tree)}"
    # Before anything is compiled: this NCCL's nccl.h is among it, and the machine may have another's.
    generated(tree, base)
    own = own_objects(tree, base, target, jobs)
    objects = nccl_objects(tree, base, jobs) + [made for made in own if made.name != "binding-nvml.cc.o"]
    partial = target / "libnccl.so.2.partial"
    call(["g++", "-shared", "-o", partial, "-Wl,-soname,libnccl.so.2", "-Wl,--no-undefined", *LINK_FLAGS, *objects,
          "-lpthread", "-ldl", "-lrt"])
    # NCCL opens it by this name, beside libnccl.so.2.
    call(["g++", "-shared", "-o", target / "libnvidia-ml.so.1", target / "objects/binding-nvml.cc.o"])
    for program in ("perf", "scenarios"):
        made = compiled(own_files("ranks", program), target / "objects", own_flags(tree, base), jobs)
        call(["g++", "-o", target / f"nccl-host-{program}", *made, partial, "-lpthread", f"-Wl,-rpath,{target}"])
    partial.rename(target / "libnccl.so.2")


def key_of_nccl(tree):
    """Of NCCL's source with its generators, its version, and what is generated here."""
    files = [path for path in sorted((tree / "src").rglob("*")) if path.is_file()]
    return digest([*files, tree / "makefiles/version.mk", HERE / "kernel_symbols.py"], FLAGS)


def key(tree):
    own = sorted(path for part in PARTS for path in (HERE / part).rglob("*")
                 if path.suffix in (".cc", ".h") and "_test" not in path.name)
    return digest(own, FLAGS + OWN_FLAGS + LINK_FLAGS + [key_of_nccl(tree)])


def digest(files, words):
    compiler = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    result = hashlib.sha256(compiler + "\0".join(words).encode())
    for path in files:
        result.update(path.name.encode() + b"\0" + path.read_bytes())
    return result.hexdigest()[:16]


def nccl_objects(tree, base, jobs):
    files = [path for path in sorted((tree / "src").rglob("*")) if path.suffix in (".cc", ".cpp")]
    files = [path for path in files if not str(path.relative_to(tree)).startswith(LEFT_OUT)]
    files += [*kernel_symbols.tables(base), base / "kernel_symbols.cc"]
    return compiled(files, base / "objects", FLAGS + includes(tree, base), jobs)


def own_objects(tree, base, target, jobs):
    return compiled(own_files("runtime", "kernels", "binding"), target / "objects", own_flags(tree, base), jobs)


def own_files(*parts):
    return [path for part in parts for path in sorted((HERE / part).glob("*.cc")) if not path.name.endswith("_test.cc")]


def own_flags(tree, base):
    return OWN_FLAGS + ["-I", str(HERE.parents[1])] + [word.replace("-I", "-isystem") for word in includes(tree, base)]


def includes(tree, base):
    src = tree / "src"
    doca = sorted(src.glob("transport/**/doca-gpunetio/include"))
    # 2.30 includes graph/topo.h by that name.
    root = [src] if source.version(tree) >= (2, 30) else []
    return [f"-I{folder}" for folder in (base / "include", src / "include", src / "include/os", src / "include/plugin",
                                         src / "device", *root, *doca, CUDA / "include", CUDA / "include/cccl")
            if folder.is_dir()]


def generated(tree, base):
    """What NCCL's Makefile makes before it compiles: its header, and two tables of kernels."""
    for part, script in (("device", "generate.py"), ("symmetric", "symmetric/generate.py")):
        (base / part).mkdir(parents=True, exist_ok=True)
        call([sys.executable, "-B", script, base / part], cwd=tree / "src/device")
    (base / "include").mkdir(exist_ok=True)
    major, minor, patch = source.version(tree)
    text = (tree / "src/nccl.h.in").read_text()
    for name, value in (("Major", major), ("Minor", minor), ("Patch", patch), ("Suffix", ""),
                        ("Version", major * 10000 + minor * 100 + patch)):
        text = text.replace(f"${{nccl:{name}}}", str(value))
    write(base / "include/nccl.h", text)
    # From 2.29 on a file prints it; 2.29 includes it by the shorter name.
    for name in ("git_version.h", "nccl_git_version.h"):
        write(base / "include" / name, "".join(f'#define {prefix}GIT_{what} ""\n' for prefix in ("", "NCCL_")
                                                           for what in ("BRANCH", "COMMIT_HASH")))
    write(base / "kernel_symbols.cc", kernel_symbols.text(base))


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def compiled(files, folder, flags, jobs):
    compiler = (["ccache"] if shutil.which("ccache") else []) + ["g++"]
    root = HERE.parents[1]
    # So that what another clone compiled is found.
    shared = {"CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"}
    folder.mkdir(parents=True, exist_ok=True)

    def compile_one(path):
        # Two folders have files of one name.
        made = folder / f"{path.parent.name}-{path.name}.o"
        if not made.exists():
            partial = made.with_suffix(".partial")
            call([*compiler, *flags, "-c", path, "-o", partial], cwd=root, environment=shared)
            partial.rename(made)
        return made

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        made = []
        for each in pool.map(compile_one, files):
            made.append(each)
            progress(len(made), len(files))
        return made


def progress(done, of):
    """A line that changes on a terminal; elsewhere, as in a log, four lines of a long list."""
    if sys.stderr.isatty():
        print(f"\rnccl-host: {done} of {of} compiled ", end="\n" if done == of else "", file=sys.stderr, flush=True)
    elif of > 100 and done * 4 // of != (done - 1) * 4 // of:
        print(f"nccl-host: {done} of {of} compiled", file=sys.stderr, flush=True)


def call(command, cwd=None, environment=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **(environment or {})},
                          capture_output=True, text=True, check=False)
    if done.returncode:
        # The command may name a hundred objects; the end of what it said is what went wrong.
        raise Failed(f"failed: {' '.join(map(str, command))[:600]}\n{(done.stdout + done.stderr)[-4000:]}")
