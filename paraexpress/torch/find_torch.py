"""Prints what a backend for this Python's PyTorch is compiled with: version;include folders, with bars between them;
folder of libraries;suffix of modules. Or why it cannot be, to stderr, with status 1."""

import os
import sys
import sysconfig


def main():
    try:
        import torch
        from torch.utils import cpp_extension
    except ImportError as error:
        sys.exit(f"{sys.executable} has no PyTorch ({error}; Debian's package is python3-torch)")
    if not torch.distributed.is_available():
        sys.exit(f"PyTorch {torch.__version__} has no torch.distributed")
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        sys.exit(f"PyTorch {torch.__version__} is built with the old ABI of libstdc++")
    includes = cpp_extension.include_paths() + ["/usr/include", sysconfig.get_paths()["include"]]
    needed = {
        "torch/csrc/distributed/c10d/ProcessGroup.hpp": "libtorch-dev",
        "pybind11/pybind11.h": "pybind11-dev",
        "Python.h": "python3-dev",
    }
    for header, package in needed.items():
        if not any(os.path.exists(os.path.join(folder, header)) for folder in includes):
            sys.exit(f"no {header} (Debian's package is {package})")
    includes = [os.path.realpath(folder) for folder in includes if os.path.isdir(folder)]
    # The compiler looks there anyway; named, it would come before its own folders.
    includes = [folder for folder in dict.fromkeys(includes) if folder != "/usr/include"]
    print(torch.__version__, "|".join(includes), cpp_extension.TORCH_LIB_PATH, sysconfig.get_config_var("EXT_SUFFIX"), sep=";")


if __name__ == "__main__":
    main()
