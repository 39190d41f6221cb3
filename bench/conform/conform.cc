#include "bench/conform/conform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "bench/proxy/net_plugin.h"

namespace clustar::bench::conform {
namespace {

using Clock = std::chrono::steady_clock;

bool matches(const std::string& name, const std::string& only) {
  std::istringstream patterns(only);
  for (std::string pattern; std::getline(patterns, pattern, ',');) {
    if (pattern.empty()) continue;
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
    if (pattern.find_first_of("*?[") == std::string::npos && name.find(pattern) != std::string::npos) return true;
  }
  return only.empty();
}

std::chrono::milliseconds limit_of(const Check& check, const Env& env) {
  auto limit = env.timeout;
  if (check.waits_for_freeze) limit += env.freeze;
  if (check.waits_for_death) limit += env.death_bound;
  return limit;
}

}  // namespace

std::vector<Check> all_checks() {
  std::vector<Check> all;
  for (const auto& group :
       {abi_checks(), setup_checks(), transfer_checks(), request_checks(), memory_checks(), gpu_checks(),
        thread_checks(), error_checks(), handshake_checks(), death_checks(), close_checks(), reload_checks()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

std::vector<Check> select(const std::string& only) {
  std::vector<Check> chosen = all_checks();
  // A whole name means that check, not the others whose names begin like it.
  for (const Check& check : chosen) {
    if (only == check.name) return {check};
  }
  chosen.erase(
      std::remove_if(chosen.begin(), chosen.end(), [&](const Check& check) { return !matches(check.name, only); }),
      chosen.end());
  return chosen;
}

int Report::count(Outcome outcome) const {
  return static_cast<int>(
      std::count_if(lines.begin(), lines.end(), [&](const Line& line) { return line.finding.outcome == outcome; }));
}

Result<std::vector<int>> probe(const std::string& plugin) {
  std::error_code error;  // a link that leads to itself is no file
  if (plugin.find('/') != std::string::npos && !std::filesystem::is_regular_file(plugin, error)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no file '{}'; give the path of a plugin's .so", plugin));
  }
  const Finding finding = run_in_child(
      [&]() -> std::string {
        const auto versions = proxy::NetPlugin::exported_versions(plugin);
        if (!versions) fail_check(versions.error().message);
        return fmt::format("{}", fmt::join(*versions, " "));
      },
      std::chrono::seconds(30));
  if (finding.outcome != Outcome::kPass) return fail(ErrorCode::kInvalidArgument, finding.reason);
  std::vector<int> versions;
  std::istringstream words(finding.reason);
  for (int version = 0; words >> version;) versions.push_back(version);
  if (versions.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is no NCCL net plugin: it exports none of ncclNetPlugin_v12 .. ncclNetPlugin_v6", plugin));
  }
  return versions;
}

Result<Report> run(const Options& options, const OnStart& on_start, const OnEnd& on_end) {
  const auto begin = Clock::now();
  const std::vector<Check> checks = select(options.only);
  if (checks.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("no check matches '{}'; --list shows them all", options.only));
  }
  const auto versions = probe(options.env.plugin);
  if (!versions) return tl::unexpected(versions.error());
  std::vector<int> wanted = *versions;
  if (options.env.version != 0) {
    if (std::find(versions->begin(), versions->end(), options.env.version) == versions->end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' exports no ncclNetPlugin_v{}; it has v{}", options.env.plugin, options.env.version,
                              fmt::join(*versions, ", v")));
    }
    wanted = {options.env.version};
  }
  Report report{options.env.plugin, *versions, options.env.emulated_gpu, {}, 0, {}};
  for (const Check& check : checks) {
    for (const int version : wanted) {
      if (version != wanted.front() && !check.every_version) break;
      Env env = options.env;
      env.version = version;
      env.stuck_bound = std::min(env.stuck_bound, env.timeout / 2);
      if (on_start) on_start(check.name, version);
      report.lines.push_back({check.name, check.rule, check.source, version,
                              run_in_child([&] { return check.run(env); }, limit_of(check, env))});
      if (on_end) on_end(report.lines.back());
    }
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

}  // namespace clustar::bench::conform
