// clustar ab --table: what was reported of CLUSTAR in 2018, asked of ours.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/cli/ab_output.h"

namespace clustar::bench::cli {

struct AbTableArguments {
  std::string table;
  std::vector<std::string> models;
  std::string card = "p100";
  int steps = 5;
  const CLI::App* command = nullptr;  // whose options it has to refuse
};

// What it shares with the comparison of two arms.
struct AbTableInput {
  std::string plugin;
  std::string rate = "50M";
  int ranks = 16;
  int rounds = 0;  // 0: the usual number
  int stall_timeout_s = 60;
  std::uint64_t seed = 1;
  AbOutput output;
};

// Returns --table, by which it is asked for.
CLI::Option* add_ab_table_options(CLI::App& command, AbTableArguments& arguments);
// Returns the exit status.
int run_ab_table(const AbTableArguments& arguments, const AbTableInput& input);

}  // namespace clustar::bench::cli
