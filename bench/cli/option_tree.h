// Commands and options as data, for what is made of them at build time: manual pages and completion (packaging).
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace clustar::bench::cli {

// {name, description, footer, options: [{names, type, description, default, required, flag, positional}], commands}.
nlohmann::json option_tree(const CLI::App& app);

}  // namespace clustar::bench::cli
