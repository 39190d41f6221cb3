// The named experiments. Each runs the MLT core over a simulated network and returns what it found.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "bench/sim/row.h"
#include "transport/base/time.h"

namespace clustar::bench::sim {

enum class Length : std::uint8_t {
  kQuick,   // that it works: a second or less, figures are rough
  kNormal,  // what the results pages quote
  kFull,    // everything there is to run
};

struct Settings {
  std::uint64_t seed = 1;   // the first of
  std::uint32_t seeds = 1;  // 1 .. 1000; samples of all seeds are pooled, rates are averaged
  Length length = Length::kNormal;
  Duration burst_gap = std::chrono::milliseconds(5);    // between micro-bursts
  std::function<void(const std::string&)> on_arm = {};  // told of each arm before it runs

  void progress(const std::string& what) const {
    if (on_arm) on_arm(what);
  }
  // How much of something to do.
  std::uint32_t amount(std::uint32_t quick, std::uint32_t normal, std::uint32_t full) const {
    return length == Length::kQuick ? quick : length == Length::kNormal ? normal : full;
  }
};

Rows run_loss(const Settings& settings);
Rows run_start_up(const Settings& settings);
Rows run_incast(const Settings& settings);
Rows run_bad_path(const Settings& settings);
Rows run_bad_spine(const Settings& settings);
Rows run_micro_bursts(const Settings& settings);
Rows run_tolerance(const Settings& settings);
Rows run_mice(const Settings& settings);
Rows run_fairness(const Settings& settings);
Rows run_take_turns(const Settings& settings);
Rows run_scale(const Settings& settings);
Rows run_long_pipe(const Settings& settings);
Rows run_paths(const Settings& settings);
Rows run_plans(const Settings& settings);
Rows run_plans_flow(const Settings& settings);

struct Experiment {
  const char* name;
  const char* what;
  Rows (*run)(const Settings&);
};
std::span<const Experiment> experiments();

}  // namespace clustar::bench::sim
