#include "bench/ab/suite/arm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>

namespace clustar::bench::ab::suite {
namespace {

constexpr std::uint64_t kRingChunk = 512 * 1024;  // what NCCL's Simple protocol hands to a net plugin at most
constexpr double kDeadlineFactor = 1.25;
constexpr std::string_view kTolerant = "mlt-p";
constexpr std::string_view kNoParity = "mlt-no-parity";
constexpr int kMostPercent = 10;  // what CLUSTAR_LOSS_TOLERANCE takes

Result<void> known(const std::vector<std::string>& names, const std::vector<std::string>& all, const char* option) {
  for (const std::string& name : names) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: there is no '{}'; there are: {}", option, name, fmt::join(all, ", ")));
  }
  return {};
}

bool wanted(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::vector<Carrier>> choose_carriers(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  std::vector<Carrier> chosen, extra;
  for (const Carrier& carrier : all_carriers()) {
    all.push_back(carrier.name);
    if (wanted(names, carrier.name)) chosen.push_back(carrier);
  }
  for (const std::string& name : std::set<std::string>(names.begin(), names.end())) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    auto carrier = find_carrier(name);
    if (!carrier) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--arms: there is no '{}'; there are: {}, {}, and {}X, X percent above 0 and at most {}, such "
                      "as mlt-p0.5",
                      name, fmt::join(all, ", "), kNoParity, kTolerant, kMostPercent));
    }
    extra.push_back(std::move(*carrier));
  }
  std::sort(extra.begin(), extra.end(),
            [](const Carrier& a, const Carrier& b) { return a.tolerance_ppm < b.tolerance_ppm; });
  chosen.insert(chosen.end(), extra.begin(), extra.end());
  return chosen;
}

}  // namespace

const std::vector<Carrier>& all_carriers() {
  static const std::vector<Carrier> all{
      {.name = "tcp-cubic", .label = "TCP cubic", .congestion = "cubic"},
      {.name = "tcp-bbr", .label = "TCP bbr", .congestion = "bbr"},
      {.name = "tcp-cubic-rto5", .label = "TCP cubic, rto_min 5 ms", .congestion = "cubic", .rto_min_us = kShortRtoUs},
      {.name = "tcp-bbr-rto5", .label = "TCP bbr, rto_min 5 ms", .congestion = "bbr", .rto_min_us = kShortRtoUs},
      {.name = "mlt-p0", .label = "MLT, reliable"},
      {.name = "mlt-p1", .label = "MLT, 1 % may be missing", .tolerance_ppm = 10'000},
      {.name = "mlt-deadline",
       .label = "static deadline (UBT's rule, re-implemented); breaks the loss contract",
       .static_deadline = true}};
  return all;
}

std::optional<Carrier> find_carrier(const std::string& name) {
  for (const Carrier& carrier : all_carriers()) {
    if (carrier.name == name) return carrier;
  }
  if (name == kNoParity) return Carrier{.name = name, .label = "MLT, reliable, without parity", .parity = false};
  if (!name.starts_with(kTolerant)) return std::nullopt;
  double percent = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kTolerant.size(), end, percent);
  if (error != std::errc() || stopped != end || !(percent > 0) || percent > kMostPercent) return std::nullopt;
  const auto ppm = static_cast<std::uint32_t>(std::lround(percent * 1e4));
  // One arm, one name: results are found by it.
  if (fmt::format("{}{:g}", kTolerant, ppm / 1e4) != name) return std::nullopt;
  return Carrier{.name = name, .label = fmt::format("MLT, {:g} % may be missing", percent), .tolerance_ppm = ppm};
}

Result<std::vector<SuiteArm>> choose_arms(const std::vector<std::string>& carriers,
                                          const std::vector<std::string>& algorithms) {
  const auto chosen = choose_carriers(carriers);
  if (!chosen) return tl::unexpected(chosen.error());
  const std::vector<std::string> all(std::begin(kAlgorithms), std::end(kAlgorithms));
  if (const auto ok = known(algorithms, all, "--all-reduce"); !ok) return tl::unexpected(ok.error());
  const std::vector<std::string> both{kRing, kAllToAll};
  std::vector<SuiteArm> arms;
  for (const std::string& algorithm : all) {
    if (!wanted(algorithms.empty() ? both : algorithms, algorithm)) continue;
    const std::size_t before = arms.size();
    for (const Carrier& carrier : *chosen) {
      if (algorithm == kParaexpress && (carrier.tolerance_ppm > 0 || carrier.static_deadline)) continue;
      arms.push_back({carrier, algorithm});
    }
    if (arms.size() > before) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--all-reduce {}: it sums exactly, so it needs a carrier that loses nothing: one of TCP's, "
                            "mlt-p0 or {}",
                            algorithm, kNoParity));
  }
  return arms;
}

std::string reference_algorithm(const std::string& algorithm) { return algorithm == kParaexpress ? kRing : algorithm; }

double static_deadline_s(const Load& load, const std::string& algorithm) {
  const std::uint64_t share = load.largest_bucket_bytes / static_cast<std::uint64_t>(load.ranks);
  const std::uint64_t bytes =
      algorithm == kRing ? std::min(share, kRingChunk) : share * static_cast<std::uint64_t>(load.ranks - 1);
  return kDeadlineFactor * 8 * static_cast<double>(std::max<std::uint64_t>(bytes, 1)) /
         static_cast<double>(load.rate_bps);
}

Settings environment_of(const SuiteArm& arm, const Load& load) {
  const Carrier& carrier = arm.carrier;
  if (carrier.is_tcp()) return {{"CLUSTAR_TRANSPORT", "tcp"}, {"CLUSTAR_TCP_CONGESTION", carrier.congestion}};
  Settings settings{{"CLUSTAR_TRANSPORT", "mlt"}};
  if (carrier.tolerance_ppm > 0) {
    settings["CLUSTAR_LOSS_TOLERANCE"] = fmt::format("{}", carrier.tolerance_ppm / 1e6);
    settings["CLUSTAR_LOSS_RULES"] = arm.algorithm == kRing ? "func=allreduce" : "func=allreduce;func=sendrecv";
  }
  if (!carrier.parity) settings["CLUSTAR_PARITY"] = "off";
  if (carrier.static_deadline) {
    settings["CLUSTAR_STATIC_DEADLINE"] = fmt::format("{:.6f}", static_deadline_s(load, arm.algorithm));
  }
  return settings;
}

Settings options_of(const SuiteArm& arm) {
  if (arm.algorithm != kParaexpress) return {};
  return {{"collective", "paraexpress"}, {"regions", "probe"}};
}

std::vector<std::string> arguments_of(const SuiteArm& arm, const std::string& missing) {
  std::vector<std::string> arguments;
  // A ring is what the trainer does by itself.
  if (arm.algorithm == kAllToAll) arguments = {"--all-reduce", arm.algorithm, "--missing", missing};
  // It delivers different bytes to different ranks, which every other arm is held to.
  if (arm.carrier.static_deadline) arguments.insert(arguments.end(), {"--check-equal", "off"});
  return arguments;
}

std::vector<std::string> in_the_way(const Settings& inherited) {
  std::vector<std::string> names;
  for (const auto& [name, value] : inherited) {
    const bool ours = name == "CLUSTAR_TRANSPORT" || name == "CLUSTAR_REQUIRE" || name == "CLUSTAR_CONFIG" ||
                      name == "CLUSTAR_TCP_CONGESTION" || name == "CLUSTAR_INJECT_FAULTS" ||
                      name == "CLUSTAR_STATIC_DEADLINE" || name == "CLUSTAR_PARITY" ||
                      name.starts_with("CLUSTAR_LOSS_");
    // How long all-reduces stay reliable at first is the same for all arms, and short runs want it short.
    if (ours && name != "CLUSTAR_LOSS_WARMUP") names.push_back(name);
  }
  return names;
}

}  // namespace clustar::bench::ab::suite
