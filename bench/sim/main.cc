// clustar-sim: the named experiments of the MLT core over the simulated network.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report/report.h"
#include "bench/sim/experiments.h"
#include "bench/sim/render.h"
#include "transport/base/version.h"

namespace {

using namespace clustar::bench::sim;
namespace report = clustar::bench::report;

constexpr std::string_view kUsage =
    R"(usage: clustar-sim [--experiment NAME[,NAME]...] [options]

Runs the MLT core over a simulated network (100 Gbit/s, 10 us there and back) and prints what it found. The same seeds
give the same figures on every machine, but for the CPU times of `scale`.

  --experiment NAMES  only these, separated by commas (default: all; --list names them)
  --list              the experiments
  --seeds N           runs of each arm, from N seeds, 1 to 1000 (default 1)
  --seed N            the first seed (default 1)
  --quick             a second or less of each, to see that it works: rough figures
  --full              longer runs, and all rounds of `scale`
  --burst-gap-us N    pause between micro-bursts, 100 to 1000000 (default 5000)
  --check             exit status 1 when a bar is missed
  --json FILE         results as JSON too; - is standard output, instead of the table
  --version           version and commit
  --help              this text

example: clustar-sim --experiment loss,incast --seeds 5 --json build/sim.json
exit status: 0 all ran; 1 a bar was missed under --check, or FILE cannot be written; 2 wrong usage
)";
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct Command {
  std::vector<const Experiment*> experiments;
  Settings settings;
  bool check = false;
  std::string json;
};

int wrong_usage(const std::string& what) {
  std::fprintf(stderr, "clustar-sim: %s; see clustar-sim --help\n", what.c_str());
  return kWrongUsage;
}

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t low, std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) return std::nullopt;
  return value;
}

// "" or what is wrong.
std::string choose(std::string_view names, std::vector<const Experiment*>& chosen) {
  while (true) {
    const std::size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    const std::size_t before = chosen.size();
    std::string known;
    for (const Experiment& experiment : experiments()) {
      if (name == experiment.name) chosen.push_back(&experiment);
      known += known.empty() ? experiment.name : fmt::format(", {}", experiment.name);
    }
    if (chosen.size() == before) return fmt::format("there is no experiment '{}'; there are {}", name, known);
    if (comma == std::string_view::npos) return "";
    names.remove_prefix(comma + 1);
  }
}

// One option that takes a value. "" or what is wrong.
std::string take(std::string_view option, std::string_view value, Command& command) {
  if (option == "--experiment") return choose(value, command.experiments);
  if (option == "--json") {
    command.json = value;
    return value.empty() ? "--json needs a file" : "";
  }
  struct Range {
    const char* option;
    std::uint64_t low, high;
  };
  constexpr Range kRanges[] = {{"--seeds", 1, 1000}, {"--seed", 0, 1ull << 62}, {"--burst-gap-us", 100, 1'000'000}};
  for (const Range& range : kRanges) {
    if (option != range.option) continue;
    const auto given = number(value, range.low, range.high);
    if (!given) return fmt::format("{}: '{}' is not a number from {} to {}", option, value, range.low, range.high);
    if (option == "--seeds") command.settings.seeds = static_cast<std::uint32_t>(*given);
    if (option == "--seed") command.settings.seed = *given;
    if (option == "--burst-gap-us") command.settings.burst_gap = std::chrono::microseconds(*given);
    return "";
  }
  return fmt::format("unknown option '{}'", option);
}

// The exit status when there is nothing to run.
std::optional<int> parse(int argc, char** argv, Command& command) {
  for (int i = 1; i < argc; ++i) {
    std::string_view option = argv[i];
    if (option == "--help" || option == "-h") {
      std::fwrite(kUsage.data(), 1, kUsage.size(), stdout);
      return 0;
    }
    if (option == "--version") {
      std::printf("clustar-sim %s\n", clustar::version_text().c_str());
      return 0;
    }
    if (option == "--list") {
      for (const Experiment& experiment : experiments()) std::printf("%-14s%s\n", experiment.name, experiment.what);
      return 0;
    }
    if (option == "--check") {
      command.check = true;
    } else if (option == "--quick") {
      command.settings.length = Length::kQuick;
    } else if (option == "--full") {
      command.settings.length = Length::kFull;
    } else {
      const std::size_t equals = option.find('=');
      std::string_view value;
      if (equals != std::string_view::npos) {
        value = option.substr(equals + 1);
        option = option.substr(0, equals);
      } else if (i + 1 < argc) {
        value = argv[++i];
      }
      if (const std::string wrong = take(option, value, command); !wrong.empty()) return wrong_usage(wrong);
    }
  }
  return std::nullopt;
}

int run(Command& command) {
  if (command.experiments.empty()) {
    for (const Experiment& experiment : experiments()) command.experiments.push_back(&experiment);
  }
  if (const auto writable = report::check_writable(command.json); !writable) {
    std::fprintf(stderr, "clustar-sim: %s\n", writable.error().message.c_str());
    return kFailed;
  }
  const bool show_progress = isatty(STDERR_FILENO) != 0;
  nlohmann::json results = nlohmann::json::array();
  bool missed = false;
  for (const Experiment* experiment : command.experiments) {
    if (show_progress) {
      command.settings.on_arm = [experiment](const std::string& arm) {
        std::fprintf(stderr, "\r\033[K%s: %s", experiment->name, arm.c_str());
      };
    }
    const Rows rows = experiment->run(command.settings);
    if (show_progress) std::fputs("\r\033[K", stderr);
    for (const Row& row : rows) missed = missed || !row.met();
    for (auto& row : to_json(*experiment, rows)) results.push_back(std::move(row));
    if (command.json != "-") std::fputs(table(*experiment, rows).c_str(), stdout);
    if (std::fflush(stdout) != 0) {
      std::fprintf(stderr, "clustar-sim: the table cannot be written\n");
      return kFailed;
    }
  }
  if (!command.json.empty()) {
    const auto written = report::write_json(report::envelope("sim", std::move(results)), command.json);
    if (!written) {
      std::fprintf(stderr, "clustar-sim: %s\n", written.error().message.c_str());
      return kFailed;
    }
  }
  return command.check && missed ? kFailed : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Command command;
  if (const auto status = parse(argc, argv, command)) return *status;
  return run(command);
}
