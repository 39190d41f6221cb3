#include "bench/cli/option_tree.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace clustar::bench::cli {
namespace {

nlohmann::json describe(const CLI::Option& option) {
  nlohmann::json names = nlohmann::json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const bool positional = names.empty();
  if (positional) names.push_back(option.get_name());
  return {{"names", std::move(names)},
          {"type", option.get_type_name()},
          {"description", option.get_description()},
          {"default", option.get_default_str()},
          {"required", option.get_required()},
          {"flag", option.get_items_expected_max() == 0},
          {"positional", positional}};
}

}  // namespace

nlohmann::json option_tree(const CLI::App& app) {
  nlohmann::json options = nlohmann::json::array();
  // An option of no group is hidden from --help, too.
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* each) { return !each->get_group().empty(); })) {
    options.push_back(describe(*option));
  }
  nlohmann::json commands = nlohmann::json::array();
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    commands.push_back(option_tree(*command));
  }
  return {{"name", app.get_name()},
          {"description", app.get_description()},
          {"footer", app.get_footer()},
          {"options", std::move(options)},
          {"commands", std::move(commands)}};
}

}  // namespace clustar::bench::cli
