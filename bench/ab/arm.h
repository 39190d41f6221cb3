// One side of a comparison: a net plugin, ParaExpress or a parameter server, and the environment that it runs with.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::ab {

using Settings = std::map<std::string, std::string>;  // environment variables

struct Arm {
  std::string name;
  Settings settings;
  std::string plugin;  // path; empty unless opens_plugin()
  // Of `clustar train`, without "--": collective, plan, regions and helpers, as far as they are given.
  Settings options{};

  bool by_paraexpress() const;
  bool by_ps() const;
  int helpers() const;  // processes of ParaExpress beside the ranks
  bool opens_plugin() const { return !by_paraexpress() && !by_ps(); }
};

// "NAME=VALUE,NAME=VALUE"; \, is a comma in a value. kInvalidArgument: no such form, a name twice.
Result<Settings> parse_settings(const std::string& text);

// "CLUSTAR_TCP_SOCKETS=1,CLUSTAR_TCP_CONGESTION=cubic,plugin=/path/to/plugin.so" or "" for the defaults. A comma
// separates, and \, is a comma in a value. Without plugin= it is `plugin`; without `name` the text says who it is.
// "collective=paraexpress" sums by ParaExpress instead, and "plan=PLAN", "regions=FILE" and "helpers=K" go with it.
// "collective=ps" is the parameter server of 2018, named ps-2018; it has no settings of ours.
// kInvalidArgument: no such form, a name twice, no such plugin, and what those contradict.
Result<Arm> parse_arm(const std::string& text, const std::string& name, const std::string& plugin);

// Whether our own plugin would take the settings, given the rest of the environment. kInvalidArgument names the key and
// what is allowed.
Result<void> check_settings(const Arm& arm, const Settings& inherited);

// Variables of this process that matter to a training run: CLUSTAR_*, NCCL_*, OMP_*, ONEDNN_*, DNNL_*.
Settings inherited_settings();

// The TCP congestion control under the arm: its own setting, otherwise an inherited one, otherwise `kernel_default`. Of
// mlt, which brings its own, "mlt's own"; of ofi and by_ps() `kernel_default`, since those sockets hear of no setting.
struct Congestion {
  std::string name;
  bool explicitly = false;
};
Congestion congestion_of(const Arm& arm, const Settings& inherited, const std::string& kernel_default);

// What to say of an arm that leaves it to the kernel. `transport`: what the trainer reports of a run, or null.
std::string congestion_warning(const std::string& arm, const std::string& kernels, const nlohmann::json& transport);

// Whether ParaExpress can train so many ranks by the arm's plan and region map. Nothing to say of other arms.
Result<void> check_options(const Arm& arm, int ranks);

// "CLUSTAR_TCP_SOCKETS=1 CLUSTAR_TCP_CONGESTION=cubic"
std::string to_string(const Settings& settings);

}  // namespace clustar::bench::ab
