"""Where NCCL's source is, unpacked, and what its build reads from it."""

import hashlib
import lzma
import os
import pathlib
import re
import shutil
import tarfile
import zlib

import alone

OLDEST = (2, 27, 7)
ADVICE = ("get it with `git clone --depth 1 --branch v2.28.9-1 https://github.com/NVIDIA/nccl` and give that folder as "
          "--source or CLUSTAR_NCCL_SOURCE")


class NotHere(Exception):
    """NCCL's source is not on this machine."""


class Wrong(Exception):
    """What was named is not NCCL's source, or one that the emulation does not know."""


def find(named, from_environment, kept, build):
    """The folder of NCCL's source; a tarball is unpacked under build."""
    for value, by in ((named, "--source"), (from_environment, "CLUSTAR_NCCL_SOURCE")):
        if value:
            # realpath, which takes a link to itself as it is; pathlib's resolve() raises.
            path = pathlib.Path(os.path.realpath(value))
            if not path.exists():
                raise Wrong(f"{by} names '{value}', which does not exist; {ADVICE}")
            if not path.is_dir() and not path.is_file():
                raise Wrong(f"{by} names '{value}', which is neither a folder nor a file; {ADVICE}")
            return checked(path if path.is_dir() else unpacked(path, build), by)
    tarballs = sorted(kept.glob("nccl-*-src.tar.*"), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
    if not tarballs:
        raise NotHere(f"no source of NCCL: {ADVICE}")
    return checked(unpacked(tarballs[-1], build), str(tarballs[-1]))


def checked(tree, by):
    found = version(tree)
    if found < OLDEST:
        raise Wrong(f"{by} is NCCL {'.'.join(map(str, found))}; the emulation knows {'.'.join(map(str, OLDEST))} and newer")
    return tree


def version(tree):
    numbers = tree / "makefiles/version.mk"
    if not numbers.is_file() or not (tree / "src/nccl.h.in").is_file():
        raise Wrong(f"'{tree}' is not NCCL's source: makefiles/version.mk or src/nccl.h.in is missing")
    text = numbers.read_text(errors="replace")
    found = [re.search(rf"NCCL_{part}\s*:=\s*(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    if None in found:
        raise Wrong(f"'{numbers}' does not say NCCL_MAJOR, NCCL_MINOR and NCCL_PATCH")
    return tuple(int(each[1]) for each in found)


def unpacked(tarball, build):
    try:
        digest = hashlib.sha256(tarball.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise Wrong(f"cannot read '{tarball}': {error.strerror}; {ADVICE}") from error
    folder = build / f"source-{digest}"
    if folder.exists():
        return folder
    try:
        with alone.in_folder(build):
            if not folder.exists():
                unpack(tarball, folder)
    # What is cut off ends in any of these.
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        shutil.rmtree(partial_of(folder), ignore_errors=True)
        # After the first line come all the formats that it does not have.
        reason = str(error).splitlines()[0].rstrip(":")
        raise Wrong(f"cannot unpack '{tarball}' ({reason}): it is no tarball, or a part of one; {ADVICE}") from error
    return folder


def partial_of(folder):
    return folder.with_suffix(".partial")


def unpack(tarball, folder):
    partial = partial_of(folder)
    with tarfile.open(tarball) as archive:
        archive.extractall(partial, filter="data")
    inside = list(partial.iterdir())
    top = inside[0] if len(inside) == 1 else partial
    top.rename(folder)
    if top != partial:
        partial.rmdir()
