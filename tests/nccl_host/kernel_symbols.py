"""Definitions for the kernels that NCCL's host tables name: nothing calls them, their addresses tell them apart."""

import re

HEAD = """// Generated from NCCL's tables of kernels.
#include "device.h"
#if __has_include("sym_kernels.h")
#include "sym_kernels.h"
#endif

// Addresses must differ, so no body may be folded into another.
#define KERNEL(name, args) __attribute__((noinline)) __global__ void name(args const) { __asm__ volatile("# " #name); }
"""


def declared(text):
    """(name, type of its argument) of every kernel declared in a generated table."""
    return re.findall(r"__global__ void (\w+)\((?:struct )?(\w+)(?: const)?\);", text)


def tables(base):
    """What NCCL's generators make of tables for the host; 2.27 calls the second one otherwise."""
    symmetric = [path for name in ("sym_kernels_host.cc", "symmetric_kernels.cc") if (path := base / "symmetric" / name).exists()]
    return [base / "device/host_table.cc", *symmetric]


def text(base):
    kernels = sorted({kernel for table in tables(base) for kernel in declared(table.read_text())})
    lines = [f"KERNEL({name}, {args})" for name, args in kernels]
    rows = [f'    {{"{name}", reinterpret_cast<const void*>(&{name})}},' for name, _ in kernels]
    return "\n".join([HEAD, *lines, "", "struct NamedKernel { const char* name; const void* symbol; };",
                      "extern const NamedKernel clustar_kernel_symbols[] = {", *rows, "    {nullptr, nullptr},", "};",
                      'extern const unsigned clustar_kernel_symbol_count = sizeof(clustar_kernel_symbols) / '
                      'sizeof(clustar_kernel_symbols[0]) - 1;', ""])
