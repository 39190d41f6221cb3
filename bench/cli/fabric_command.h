// What the subcommands of `clustar fabric` share. The subcommands are spread over several .cc, one per concern.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/fabric/spec.h"
#include "bench/fabric/switch/rules_text.h"
#include "transport/base/result.h"

namespace CLI {
class App;
}

namespace clustar::bench::cli {

struct FabricArguments {
  fabric::FabricSpec spec;
  std::string rate = "1G";
  std::string buffer;
  std::string uplink_rate;
  std::string uplink_buffer;
  std::string delay;
  std::string delay_by;
  std::string topology;             // a file; then nothing above but the name counts
  std::vector<std::string> spines;  // none or one: the number may be left out
  std::string host;
  std::vector<std::string> command;  // only counted: CLI11 rewrites arguments in brackets
  std::string json_path;
  bool all = false;
  bool force = false;  // another user's fabric, too
  bool no_probe = false;
  fabric::RuleTexts rules;
  std::string place;  // of the rules that `set` changes
  bool clear = false;
  bool reset = false;
  double watch_s = 0;
};

// Print the error; the exit status that goes with it.
int fabric_error(const Error& error);
int fabric_usage_error(const std::string& message);
// For a file that cannot be written, found out before anything is made or removed; prints it then and sets `status`.
bool cannot_write(const std::string& path, int& status);
// Text and JSON of a result; the exit status.
int show_fabric(const FabricArguments& arguments, const std::string& text, const nlohmann::json& results);

// A subcommand with the options that all have.
CLI::App& add_fabric_command(CLI::App& app, const std::string& name, const std::string& what,
                             FabricArguments& arguments);
// --force: a fabric that another user made, too.
void add_fabric_force(CLI::App& command, FabricArguments& arguments);
void add_fabric_json(CLI::App& command, FabricArguments& arguments);

void add_rule_options(CLI::App& command, fabric::RuleTexts& texts);
// Changes what the options speak of; the error names the option.
Result<void> apply_options(const fabric::RuleTexts& texts, fabric::PortRules& rules);

// Shows the fabric's status every so many seconds until Ctrl-C; with `json_path` ("-": instead of the text) also as one
// JSON object per line. Returns the exit status.
int watch_fabric(const std::string& name, double seconds, const std::string& json_path);

void add_fabric_selftest(CLI::App& app, int& status);
void add_fabric_set(CLI::App& app, const std::shared_ptr<FabricArguments>& arguments, int& status);
void add_fabric_up(CLI::App& app, const std::shared_ptr<FabricArguments>& arguments, int& status);

}  // namespace clustar::bench::cli
