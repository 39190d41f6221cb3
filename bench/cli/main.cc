#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "bench/cli/commands.h"
#include "bench/cli/option_tree.h"
#include "bench/cli/options.h"
#include "bench/cli/wrong_usage.h"
#include "transport/base/version.h"

int main(int argc, char** argv) {
  CLI::App app{"clustar: scheduling and transport under NCCL: test a net plugin, train over it, measure it"};
  app.name("clustar");
  app.set_version_flag("--version", "clustar " + clustar::version_text());
  app.require_subcommand(1);
  app.footer("Example: clustar train --model mlp --ranks 4\nEach command has its own --help.");
  int status = 0;
  clustar::bench::cli::add_ab(app, status);
  clustar::bench::cli::add_aggregator(app, status);
  clustar::bench::cli::add_coflow(app, status);
  clustar::bench::cli::add_conform(app, status);
  clustar::bench::cli::add_coordinator(app, status);
  clustar::bench::cli::add_doctor(app, status);
  clustar::bench::cli::add_fabric(app, status);
  clustar::bench::cli::add_perf(app, status);
  clustar::bench::cli::add_plan(app, status);
  clustar::bench::cli::add_report(app, status);
  clustar::bench::cli::add_settings(app, status);
  clustar::bench::cli::add_train(app, status);
  const auto words = std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0);
  // For the build, so not in --help.
  if (words.size() == 1 && words[0] == std::string("--option-tree")) {
    std::cout << clustar::bench::cli::option_tree(app).dump() << "\n";
    return clustar::bench::cli::kOk;
  }
  if (const std::string wrong = clustar::bench::cli::wrong_command(app, "clustar", words); !wrong.empty()) {
    std::cerr << wrong;
    return clustar::bench::cli::kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // What is unknown explains what is missing, and comes before a value that is wrong.
    const bool waits = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                       dynamic_cast<const CLI::ValidationError*>(&error) != nullptr;
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || (waits && !app.remaining(true).empty())) {
      std::cerr << clustar::bench::cli::unknown_word(app, words);
      return clustar::bench::cli::kUsage;
    }
    // CLI11 returns its own numbers; ours are 0 for help and version, 2 for wrong usage.
    status = app.exit(error) == 0 ? clustar::bench::cli::kOk : clustar::bench::cli::kUsage;
  }
  // A full disk, most of all: what is lost must not look like success.
  if (std::cout.flush()) return status;
  std::cerr << "clustar: standard output did not take all that was written to it\n";
  return status == clustar::bench::cli::kOk ? clustar::bench::cli::kFailed : status;
}
