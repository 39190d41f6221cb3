// Whether several hosts would bring ranks that fit each other.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/doctor/nccl_report.h"

namespace clustar::bench::doctor {
namespace {

using nlohmann::json;

// NCCL's own, which all ranks need alike: they change its graphs, buffers or protocols.
constexpr const char* kAlikeForNccl[] = {"NCCL_NET",          "NCCL_PROTO",         "NCCL_ALGO",
                                         "NCCL_BUFFSIZE",     "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
                                         "NCCL_MIN_CTAS",     "NCCL_MAX_CTAS",      "NCCL_NTHREADS",
                                         "NCCL_LL_BUFFSIZE",  "NCCL_CROSS_NIC",     "NCCL_P2P_NET_CHUNKSIZE",
                                         "NCCL_CUMEM_ENABLE", "NCCL_COLLNET_ENABLE"};
// Of one host, or of its log; that they differ means nothing.
constexpr const char* kOfOneHost[] = {
    "LD_LIBRARY_PATH",   "NCCL_HOSTID",          "NCCL_DEBUG",          "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_HCA",       "NCCL_TOPO_FILE",       "NCCL_SOCKET_IFNAME",  "NCCL_NET_PLUGIN", "NCCL_CONF_FILE",
    "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_FILE", "NCCL_COMM_ID"};

template <std::size_t N>
bool among(const std::string& name, const char* const (&names)[N]) {
  return std::any_of(std::begin(names), std::end(names), [&](const char* one) { return name == one; });
}

struct Host {
  std::string name;
  json results;
};

// "tcp on a, b; mlt on c", and whether there is more than one.
struct Values {
  std::map<std::string, std::vector<std::string>> hosts;
  bool alike() const { return hosts.size() <= 1; }
  std::string text() const {
    std::string all;
    for (const auto& [value, on] : hosts) {
      all += fmt::format("{}{} on {}", all.empty() ? "" : "; ", value.empty() ? "nothing" : "'" + value + "'",
                         fmt::join(on, ", "));
    }
    return all;
  }
};

Values values_of(const std::vector<Host>& hosts, const std::function<std::string(const json&)>& value) {
  Values values;
  for (const Host& host : hosts) values.hosts[value(host.results)].push_back(host.name);
  return values;
}

Check alike(const std::string& name, const Values& values, Outcome else_outcome, const std::string& fix) {
  if (!values.alike()) return {name, else_outcome, values.text(), fix};
  return {name,
          Outcome::kOk,
          values.hosts.empty()                  ? "no report to compare"
          : values.hosts.begin()->first.empty() ? "nothing on all"
                                                : values.hosts.begin()->first + " on all",
          {}};
}

std::set<std::string> names_of(const std::vector<Host>& hosts, const char* key) {
  std::set<std::string> names;
  for (const Host& host : hosts) {
    const json table = host.results.value(key, json::object());
    for (const auto& [name, value] : table.items()) names.insert(name);
  }
  return names;
}

std::string value_of(const json& results, const char* key, const std::string& name) {
  const json table = results.value(key, json::object());
  return table.contains(name) ? table[name].value("value", "") : std::string();
}

void compare_table(const std::vector<Host>& hosts, const char* key,
                   const std::function<Outcome(const std::string&)>& judge, std::vector<Check>& checks) {
  std::size_t equal = 0;
  for (const std::string& name : names_of(hosts, key)) {
    const Values values = values_of(hosts, [&](const json& results) { return value_of(results, key, name); });
    const Outcome outcome = judge(name);
    if (values.alike() || outcome == Outcome::kOk) {
      equal += values.alike() ? 1 : 0;
      continue;
    }
    checks.push_back({name, outcome, values.text(),
                      outcome == Outcome::kFailed ? "set it alike on all ranks" : "alike, unless you mean it so"});
  }
  checks.push_back({key, Outcome::kOk, fmt::format("{} are the same on all hosts", equal), {}});
}

std::string variable_of_setting(const std::string& name) {
  std::string variable = "CLUSTAR_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(), [](unsigned char c) { return std::toupper(c); });
  return variable;
}

std::string text_at(const json& results, const char* key) {
  return results.contains(key) && results[key].is_string() ? results[key].get<std::string>() : std::string();
}

void check_each(const std::vector<Host>& hosts, std::vector<Check>& checks) {
  for (const Host& host : hosts) {
    std::string failures;
    for (const json& check : host.results.value("checks", json::array())) {
      if (check.value("outcome", "") != "failed") continue;
      failures +=
          fmt::format("{}{}: {}", failures.empty() ? "" : "; ", check.value("name", ""), check.value("evidence", ""));
    }
    if (failures.empty()) {
      checks.push_back({host.name, Outcome::kOk, text_at(host.results, "verdict"), {}});
    } else {
      checks.push_back(
          {host.name, Outcome::kFailed, failures, "clustar doctor nccl on " + host.name + " says what to do"});
    }
  }
}

}  // namespace

std::vector<Check> compare(const std::vector<HostReport>& reports, const std::vector<std::string>& shared) {
  std::vector<Check> checks;
  std::vector<Host> hosts;
  for (const HostReport& report : reports) {
    json results = json::parse(report.json, nullptr, false);
    if (report.failure.empty() && results.is_object()) {
      hosts.push_back({report.host, std::move(results)});
      continue;
    }
    checks.push_back({report.host, Outcome::kFailed,
                      report.failure.empty() ? "its report cannot be read" : report.failure,
                      "run `clustar doctor nccl --json FILE` there, and compare the files"});
  }
  check_each(hosts, checks);
  checks.push_back(
      alike("plugin",
            values_of(hosts,
                      [](const json& results) {
                        return std::string(results.value("uses_clustar", false) ? "clustar" : "another network");
                      }),
            Outcome::kFailed, "the same plugin on all ranks, and NCCL_NET=clustar, so that none does without"));
  checks.push_back(alike("transport",
                         values_of(hosts, [](const json& results) { return text_at(results, "transport"); }),
                         Outcome::kFailed, "CLUSTAR_TRANSPORT or CLUSTAR_REQUIRE alike on all ranks"));
  checks.push_back(alike("version", values_of(hosts, [](const json& results) { return text_at(results, "version"); }),
                         Outcome::kFailed, "the same version on all hosts"));
  checks.push_back(alike("build",
                         values_of(hosts,
                                   [](const json& results) {
                                     const json plugin = results.value("plugin", json(nullptr));
                                     return plugin.is_object() ? plugin.value("build_id", "") : std::string();
                                   }),
                         Outcome::kWarning, "copy one file to all hosts"));
  compare_table(
      hosts, "settings",
      [&](const std::string& name) {
        const bool needed = std::find(shared.begin(), shared.end(), variable_of_setting(name)) != shared.end();
        return needed ? Outcome::kFailed : Outcome::kWarning;
      },
      checks);
  compare_table(
      hosts, "variables",
      [](const std::string& name) {
        // Ours are among the settings, with what counts where none is set.
        if (name.starts_with("CLUSTAR_") || among(name, kOfOneHost)) return Outcome::kOk;
        return among(name, kAlikeForNccl) ? Outcome::kFailed : Outcome::kWarning;
      },
      checks);
  return checks;
}

}  // namespace clustar::bench::doctor
