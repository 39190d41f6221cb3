#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "bench/cli/commands.h"
#include "bench/cli/option_tree.h"
#include "bench/cli/options.h"
#include "transport/base/version.h"

namespace {

std::string example_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const std::size_t at = footer.find("Example: ");
  return at == std::string::npos ? "" : "\n" + footer.substr(at, footer.find('\n', at) - at);
}

// CLI11 would only say that some command is required, or was not expected. "" when the words name a command, or CLI11
// has to say what they are. `path`: the words before them.
std::string wrong_command(const CLI::App& app, const std::string& path, std::span<char*> words) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || (!words.empty() && words[0][0] == '-')) return "";
  std::string known;
  for (const CLI::App* command : commands) {
    if (!words.empty() && command->get_name() == words[0]) {
      return wrong_command(*command, path + " " + words[0], words.subspan(1));
    }
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  if (words.empty() && app.get_require_subcommand_min() == 0) return "";
  const std::string what = words.empty() ? "say what to do" : "there is no command '" + std::string(words[0]) + "'";
  return path + ": " + what + "; allowed: " + known + example_of(app) + "\nRun " + path +
         " --help for more information.\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"clustar: scheduling and transport under NCCL: test a net plugin, train over it, measure it"};
  app.name("clustar");
  app.set_version_flag("--version", "clustar " + clustar::version_text());
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
  clustar::bench::cli::add_settings(app, status);
  clustar::bench::cli::add_train(app, status);
  const auto words = std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0);
  // For the build, so not in --help.
  if (words.size() == 1 && words[0] == std::string("--option-tree")) {
    std::cout << clustar::bench::cli::option_tree(app).dump() << "\n";
    return clustar::bench::cli::kOk;
  }
  if (const std::string wrong = wrong_command(app, "clustar", words); !wrong.empty()) {
    std::cerr << wrong;
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
