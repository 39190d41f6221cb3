#include <CLI/CLI.hpp>
#include <iostream>

#include "bench/cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"clustar: scheduling and transport under NCCL: test a net plugin, train over it, measure it"};
  app.name("clustar");
  app.set_version_flag("--version", CLUSTAR_VERSION);
  app.require_subcommand(1);
  app.footer("Example: clustar train --model mlp --ranks 4\nEach command has its own --help.");
  int status = 0;
  clustar::bench::cli::add_ab(app, status);
  clustar::bench::cli::add_conform(app, status);
  clustar::bench::cli::add_fabric(app, status);
  clustar::bench::cli::add_perf(app, status);
  clustar::bench::cli::add_train(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 returns its own numbers; ours are 0 for help and version, 2 for wrong usage.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return status;
}
