#include "coflow/control/daemon/state_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <tuple>

#include "transport/base/version.h"

namespace clustar::coflow::control {
namespace {

using nlohmann::json;

double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

// ncclFunc_t
std::string function_name(std::uint8_t function) {
  constexpr std::array kNames{"broadcast",  "reduce",    "all_gather", "reduce_scatter",
                              "all_reduce", "send_recv", "send",       "recv"};
  if (function < kNames.size()) return kNames[function];
  return function == kUnknownFunction ? "" : fmt::format("function {}", function);
}

std::string urgency_name(std::uint8_t urgency) {
  constexpr std::array kNames{"blocking", "prefetch", "gradient", "background"};
  return urgency < kNames.size() ? kNames[urgency] : fmt::format("{}", urgency);
}

json class_json(const Coordinator::ClassView& one) {
  return {{"job", one.key.job},
          {"tenant", one.tenant},
          {"communicator", fmt::format("{:016x}", one.key.group)},
          {"function", function_name(one.key.function)},
          {"urgency", urgency_name(one.urgency)},
          {"place", one.place},
          {"level", one.level},
          {"agents", one.agents},
          {"waiting", one.waiting},
          {"in_all", one.in_all},
          {"left", one.left},
          {"attained", one.attained},
          {"period_ms", milliseconds(one.period)},
          {"iterations", one.iterations},
          {"latest_ms", milliseconds(one.latest)},
          {"deadline_ms", milliseconds(one.deadline)},
          {"promise", to_string(one.promise)},
          {"in_time", one.in_time},
          {"late", one.late},
          {"lags", one.lags}};
}

json agent_json(const Coordinator::AgentView& one) {
  return {{"host", one.host},         {"nic", one.nic},
          {"tenant", one.tenant},     {"job", one.job},
          {"classes", one.classes},   {"bytes_per_second", one.bytes_per_second},
          {"attained", one.attained}, {"silent_ms", milliseconds(one.silent)}};
}

json counters_json(const Coordinator::Counters& core, const DaemonView& view) {
  return {{"rounds", core.rounds},
          {"reports", core.reports},
          {"orders", core.orders},
          {"renewals", core.renewals},
          {"holds", core.holds},
          {"takeovers", core.takeovers},
          {"refused", core.refused},
          {"too_fast", core.too_fast},
          {"too_many", core.too_many},
          {"accepted", view.doors.accepted},
          {"turned_away", view.doors.turned_away},
          {"wrong_key", view.doors.wrong_key},
          {"nonsense", view.doors.nonsense},
          {"timed_out", view.doors.timed_out},
          {"too_slow", view.doors.too_slow},
          {"accept_failures", view.accept_failures}};
}

json rounds_json(const RoundTimes& rounds) {
  return {{"latest_ms", milliseconds(rounds.latest)},
          {"latest_cpu_ms", milliseconds(rounds.latest_cpu)},
          {"longest_ms", milliseconds(rounds.longest)},
          {"longest_cpu_ms", milliseconds(rounds.longest_cpu)},
          {"late_ms", milliseconds(rounds.late)}};
}

}  // namespace

std::string state_json(const Coordinator& coordinator, const DaemonView& view, TimePoint now) {
  const auto classes = coordinator.classes(now);
  auto agents = coordinator.agents(now);
  std::sort(agents.begin(), agents.end(), [](const auto& a, const auto& b) {
    return std::tie(a.host, a.nic, a.job) < std::tie(b.host, b.nic, b.job);
  });
  json shown_classes = json::array(), shown_agents = json::array();
  for (std::size_t i = 0; i < std::min(classes.size(), kMostShown); ++i)
    shown_classes.push_back(class_json(classes[i]));
  for (std::size_t i = 0; i < std::min(agents.size(), kMostShown); ++i) shown_agents.push_back(agent_json(agents[i]));
  const json state{{"version", version_text()},
                   {"in_charge", coordinator.in_charge()},
                   {"stopping", view.stopping},
                   {"standby_of", view.standby_of},
                   {"hears_primary", view.hears_primary},
                   {"term", coordinator.term()},
                   {"interval_ms", milliseconds(view.interval)},
                   {"lease_ms", milliseconds(view.lease)},
                   {"policy", view.policy},
                   {"at_ms", milliseconds(now.time_since_epoch())},
                   {"uptime_ms", milliseconds(view.uptime)},
                   {"cpu_ms", milliseconds(view.cpu)},
                   {"connections", view.connections},
                   {"strangers", view.strangers},
                   {"counters", counters_json(coordinator.counters(), view)},
                   {"round", rounds_json(view.rounds)},
                   {"classes_in_all", classes.size()},
                   {"classes", std::move(shown_classes)},
                   {"agents_in_all", agents.size()},
                   {"agents", std::move(shown_agents)}};
  // Names came over the wire: what is no UTF-8 is replaced.
  return state.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace clustar::coflow::control
