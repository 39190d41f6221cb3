#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "bench/cli/commands.h"
#include "bench/cli/options.h"

namespace {

// CLI11 would only say that some command is required. "" when the first word is a command or an option.
std::string unknown_command(CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return "";
    known += " " + command->get_name();
  }
  return "clustar: '" + std::string(argv[1]) + "' is no command; the commands are:" + known;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"clustar: scheduling and transport under NCCL: test a net plugin, train over it, measure it"};
  app.name("clustar");
  app.set_version_flag("--version", CLUSTAR_VERSION);
  app.require_subcommand(1);
  app.footer("Example: clustar train --model mlp --ranks 4\nEach command has its own --help.");
  int status = 0;
  clustar::bench::cli::add_ab(app, status);
  clustar::bench::cli::add_coflow(app, status);
  clustar::bench::cli::add_conform(app, status);
  clustar::bench::cli::add_doctor(app, status);
  clustar::bench::cli::add_fabric(app, status);
  clustar::bench::cli::add_perf(app, status);
  clustar::bench::cli::add_report(app, status);
  clustar::bench::cli::add_train(app, status);
  if (const std::string unknown = unknown_command(app, argc, argv); !unknown.empty()) {
    std::cerr << unknown << "\nRun clustar --help for more information.\n";
    return clustar::bench::cli::kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 returns its own numbers; ours are 0 for help and version, 2 for wrong usage.
    return app.exit(error) == 0 ? clustar::bench::cli::kOk : clustar::bench::cli::kUsage;
  }
  return status;
}
