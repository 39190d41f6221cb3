#include "bench/cli/wrong_usage.h"

#include <algorithm>
#include <vector>

#include "transport/base/nearest.h"

namespace clustar::bench::cli {
namespace {

std::string example_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const std::size_t at = footer.find("Example: ");
  return at == std::string::npos ? "" : "\n" + footer.substr(at, footer.find('\n', at) - at);
}

// The innermost command that the words named.
const CLI::App& called(const CLI::App& app, std::string& path) {
  const auto inner = app.get_subcommands();
  if (inner.empty()) return app;
  path += " " + inner.front()->get_name();
  return called(*inner.front(), path);
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // for processes that it starts itself
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::string wrong_command(const CLI::App& app, const std::string& path, std::span<char*> words) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || (!words.empty() && words[0][0] == '-')) return "";
  std::string known;
  std::vector<std::string> names;
  for (const CLI::App* command : commands) {
    if (!words.empty() && command->get_name() == words[0]) {
      return wrong_command(*command, path + " " + words[0], words.subspan(1));
    }
    names.push_back(command->get_name());
    known += (known.empty() ? "" : ", ") + names.back();
  }
  if (words.empty() && app.get_require_subcommand_min() == 0) return "";
  const std::string what = words.empty()
                               ? "say what to do"
                               : "there is no command '" + std::string(words[0]) + "'" + did_you_mean(words[0], names);
  return path + ": " + what + (what.ends_with('?') ? " " : "; ") + "allowed: " + known + example_of(app) + "\nRun " +
         path + " --help for more information.\n";
}

std::string unknown_word(const CLI::App& app, std::span<char*> words) {
  std::string path = app.get_name();
  const CLI::App& command = called(app, path);
  const std::vector<std::string> left = app.remaining(true);
  const auto is_left = [&](const std::string& word) { return std::find(left.begin(), left.end(), word) != left.end(); };
  std::string first;
  for (const std::string word : words) {
    if (!is_left(word)) continue;
    // A value of the unknown option may stand elsewhere as another's.
    if (first.empty()) first = word;
    if (!word.starts_with('-')) continue;
    first = word;
    break;
  }
  if (first.empty() && !left.empty()) first = left.front();
  const std::string name = first.substr(0, first.find('='));
  const std::string what = name.starts_with('-')
                               ? "there is no option " + name + did_you_mean(name, options_of(command))
                               : "'" + first + "' was not expected; options begin with --";
  return path + ": " + what + "\nRun " + path + " --help for more information.\n";
}

}  // namespace clustar::bench::cli
