#include "bench/cli/launcher_option.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "bench/trainer/launcher_place.h"

namespace clustar::bench::cli {

void add_launcher_option(CLI::App& command, bool& by_launcher, const std::string& group) {
  command
      .add_option_function<std::string>(
          "--launcher", [&by_launcher](const std::string&) { by_launcher = true; },
          "env: torchrun, mpirun or srun started this process, and its variables say rank and size; rank 0 listens at "
          "MASTER_ADDR:MASTER_PORT (MASTER_PORT + 1 where torchrun's own store has that one), or --root")
      ->check(CLI::IsMember({"env"}))
      ->type_name("env")
      ->group(group)
      ->excludes("--rank")
      ->excludes("--size");
}

std::string take_launcher(bool by_launcher, int most_ranks, bool quiet, trainer::RankOptions& rank) {
  if (!by_launcher) return {};
  const auto place = trainer::place_by_launcher([](const char* name) { return std::getenv(name); }, rank.root);
  if (!place) return place.error().message;
  if (place->size > most_ranks) {
    return fmt::format("{} says {} ranks; allowed: 1 to {}", place->launcher, place->size, most_ranks);
  }
  rank.rank = place->rank;
  rank.size = place->size;
  rank.root = place->root;
  if (!quiet && rank.rank == 0) {
    std::cerr << fmt::format("clustar train: rank 0 of {}, by {}\n", place->size, place->launcher);
  }
  return {};
}

}  // namespace clustar::bench::cli
