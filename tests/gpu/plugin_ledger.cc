#include "tests/gpu/plugin_ledger.h"

#include <dlfcn.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "nccl_plugin/clustar.h"

namespace clustar::nccl_check {
namespace {

using nlohmann::json;

constexpr std::size_t kMostCollectives = 4096;  // that the plugin keeps
constexpr std::size_t kMostRanges = 65536;

const clustarApi_v1_t& api_of(const std::string& path) {
  // NCCL keeps it loaded; the handle that is not closed here holds nothing up, the process is about to end.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error("the plugin '" + path + "' is not loaded in this process");
  const auto* const api = static_cast<const clustarApi_v1_t*>(dlsym(library, "clustarApi_v1"));
  if (api == nullptr || api->size < sizeof *api) {
    throw std::runtime_error("'" + path + "' has no clustarApi_v1 of this version; build plugin and check together");
  }
  return *api;
}

template <class Struct>
std::vector<Struct> sized(std::size_t count) {
  std::vector<Struct> out(count);
  for (Struct& one : out) one.size = sizeof one;
  return out;
}

void check(int status, const char* function) {
  if (status != CLUSTAR_OK) throw std::runtime_error(std::string(function) + " answered " + std::to_string(status));
}

json totals_of(const clustarApi_v1_t& api) {
  clustarTotals_v1 totals{};
  totals.size = sizeof totals;
  check(api.getTotals(&totals), "clustarApi_v1.getTotals");
  return {{"delivered_bytes", totals.delivered_bytes},         {"missing_bytes", totals.missing_bytes},
          {"eligible_bytes", totals.eligible_bytes},           {"sent_messages", totals.sent_messages},
          {"identified_messages", totals.identified_messages}, {"tolerant_messages", totals.tolerant_messages}};
}

json reasons_of(const clustarApi_v1_t& api) {
  json out = json::object();
  const char* name = nullptr;
  std::uint64_t messages = 0;
  for (std::uint32_t i = 0; api.getReason(i, &name, &messages) == CLUSTAR_OK; ++i) {
    if (messages > 0) out[name] = messages;
  }
  return out;
}

json to_json(const clustarApi_v1_t& api, const clustarCollective_v1& of, std::vector<clustarMissing_v1>& ranges) {
  char comm[17];
  std::snprintf(comm, sizeof comm, "%016" PRIx64, of.comm_id);
  std::size_t count = 0;
  check(api.listMissing(of.comm_id, of.function, of.local_number, of.number, ranges.data(), ranges.size(), &count),
        "clustarApi_v1.listMissing");
  std::uint64_t bytes = 0, contributions = 0;
  std::uint32_t last_stage = 0;
  for (std::size_t i = 0; i < std::min(count, ranges.size()); ++i) {
    bytes += ranges[i].bytes;
    contributions += ranges[i].bytes * (ranges[i].stage + 1);
    last_stage = std::max(last_stage, ranges[i].stage);
  }
  return {
      {"comm", comm},
      {"function", of.function},
      {"number", of.number},
      {"local_number", of.local_number},
      {"total_bytes", of.total_bytes},
      {"ranks", of.ranks},
      {"delivered_bytes", of.delivered_bytes},
      {"missing_bytes", of.missing_bytes},
      {"eligible_bytes", of.eligible_bytes},
      {"contributions", of.contributions},
      {"ranges", {{"count", count}, {"bytes", bytes}, {"contributions", contributions}, {"last_stage", last_stage}}}};
}

}  // namespace

std::string plugin_path() {
  for (const char* name : {"NETLOG_PLUGIN", "NCCL_NET_PLUGIN"}) {
    if (const char* const path = std::getenv(name); path != nullptr && *path != '\0') return path;
  }
  throw std::runtime_error("neither NETLOG_PLUGIN nor NCCL_NET_PLUGIN is set; training steps ask that plugin");
}

json plugin_ledger(const std::string& path) {
  const clustarApi_v1_t& api = api_of(path);
  auto collectives = sized<clustarCollective_v1>(kMostCollectives);
  std::size_t count = 0;
  check(api.listCollectives(collectives.data(), collectives.size(), &count), "clustarApi_v1.listCollectives");
  collectives.resize(count);
  std::sort(collectives.begin(), collectives.end(), [](const auto& a, const auto& b) {
    return std::tie(a.comm_id, a.function, a.number) < std::tie(b.comm_id, b.function, b.number);
  });
  auto ranges = sized<clustarMissing_v1>(kMostRanges);
  json out = {{"totals", totals_of(api)}, {"reasons", reasons_of(api)}, {"collectives", json::array()}};
  for (const auto& collective : collectives) out["collectives"].push_back(to_json(api, collective, ranges));
  return out;
}

}  // namespace clustar::nccl_check
