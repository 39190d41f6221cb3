#include "bench/perf/other_cpu.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace clustar::bench::perf {

using nlohmann::json;

namespace {

std::string contents(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

double difference(const Party& party, int core) {
  const auto at = static_cast<std::size_t>(core);
  if (at >= party.before.core_user_s.size() || at >= party.after.core_user_s.size()) return 0;
  return party.after.core_user_s[at] - party.before.core_user_s[at];
}

}  // namespace

Usage usage_now() {
  Usage usage;
  usage.machine = contents("/proc/sys/kernel/random/boot_id");
  while (!usage.machine.empty() && usage.machine.back() == '\n') usage.machine.pop_back();
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  usage.own_s = static_cast<double>(own.ru_utime.tv_sec) + static_cast<double>(own.ru_utime.tv_usec) / 1e6;
  usage.core_user_s = core_user_seconds(contents("/proc/stat"), static_cast<double>(sysconf(_SC_CLK_TCK)));
  return usage;
}

json to_json(const Usage& usage) {
  return {{"machine", usage.machine}, {"own_s", usage.own_s}, {"core_user_s", usage.core_user_s}};
}

Usage usage_from(const json& message) {
  Usage usage;
  const json machine = message.value("machine", json());
  const json own = message.value("own_s", json());
  const json cores = message.value("core_user_s", json());
  if (!machine.is_string() || !own.is_number() || !cores.is_array()) return usage;
  if (!std::all_of(cores.begin(), cores.end(), [](const json& core) { return core.is_number(); })) return usage;
  return {machine.get<std::string>(), own.get<double>(), cores.get<std::vector<double>>()};
}

std::vector<double> core_user_seconds(const std::string& proc_stat, double ticks_per_second) {
  std::vector<double> cores;
  std::istringstream lines(proc_stat);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("cpu", 0) != 0) continue;
    std::size_t core = 0;
    const char* end = line.data() + line.size();
    const auto [number_end, error] = std::from_chars(line.data() + 3, end, core);
    if (error != std::errc() || core >= CPU_SETSIZE) continue;  // the sum of all has no number
    std::istringstream times(std::string(number_end, end));
    double user = 0, niced = 0;
    if (!(times >> user >> niced)) continue;
    // Cores that are offline have no line.
    cores.resize(std::max(cores.size(), core + 1));
    cores[core] = (user + niced) / ticks_per_second;
  }
  return cores;
}

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

std::optional<OtherCpu> other_cpu(const std::vector<Party>& parties, const std::string& machine, double seconds) {
  std::set<int> cores;
  const Party* observer = nullptr;
  double own = 0;
  for (const Party& party : parties) {
    if (party.before.machine != machine || party.after.machine != machine) continue;
    cores.insert(party.cores.begin(), party.cores.end());
    own += party.after.own_s - party.before.own_s;
    if (observer == nullptr && !party.before.core_user_s.empty()) observer = &party;
  }
  if (machine.empty() || cores.empty() || observer == nullptr || seconds <= 0) return std::nullopt;
  double all = 0;
  for (const int core : cores) all += difference(*observer, core);
  return OtherCpu{std::max(all - own, 0.0) / seconds, static_cast<int>(cores.size()), seconds};
}

void add(std::optional<OtherCpu>& sum, const std::optional<OtherCpu>& round) {
  if (!round) return;
  if (!sum) {
    sum = round;
    return;
  }
  const double seconds = sum->seconds + round->seconds;
  sum->used = (sum->used * sum->seconds + round->used * round->seconds) / seconds;
  sum->cores = std::max(sum->cores, round->cores);
  sum->seconds = seconds;
}

}  // namespace clustar::bench::perf
