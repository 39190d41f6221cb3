// The parts of `clustar doctor`, each a subcommand in a file of its own.
#pragma once

#include <CLI/CLI.hpp>

namespace clustar::bench::cli {

void add_doctor_dpdk(CLI::App& doctor, int& status);
void add_doctor_nccl(CLI::App& doctor, int& status);
void add_doctor_torch(CLI::App& doctor, int& status);

}  // namespace clustar::bench::cli
