#include "bench/fabric/render_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/fabric/places.h"

namespace clustar::bench::fabric {
namespace {

using nlohmann::json;

constexpr const char* kRow =
    "{:<13} {:>5} | {:>10} {:>13} {:>8} | {:>8} {:>9} {:>8} {:>8} | {:>7} {:>6} | {:>8} {:>9}\n";

std::string row(const std::string& port, const std::string& which, const ClassCounters& c) {
  return fmt::format(kRow, port, which, c.packets, c.bytes, c.marked, c.dropped_buffer, c.dropped_selective,
                     c.dropped_loss, c.trimmed, c.largest_bytes, c.super_packets, c.depth_bytes, c.deepest_bytes);
}

json class_json(const ClassCounters& c) {
  return {{"packets", c.packets},
          {"bytes", c.bytes},
          {"marked", c.marked},
          {"dropped_buffer", c.dropped_buffer},
          {"dropped_selective", c.dropped_selective},
          {"dropped_loss", c.dropped_loss},
          {"trimmed", c.trimmed},
          {"largest_packet_bytes", c.largest_bytes},
          {"super_packets", c.super_packets},
          {"depth_bytes", c.depth_bytes},
          {"deepest_bytes", c.deepest_bytes}};
}

std::string port_rows(const std::string& place, const PortCounters& counters) {
  std::string text = row(place, "to", counters.to_host());
  for (std::size_t i = 0; i < counters.classes.size(); ++i) {
    const ClassCounters& one = counters.classes[i];
    if (one.packets + one.dropped() + one.trimmed > 0) text += row("", fmt::format("to {}", i), one);
  }
  ClassCounters from;
  from.packets = counters.from_host.packets;
  from.bytes = counters.from_host.bytes;
  from.dropped_loss = counters.from_host.dropped_loss;
  from.largest_bytes = counters.from_host.largest_bytes;
  from.super_packets = counters.from_host.super_packets;
  return text + row("", "from", from);
}

}  // namespace

std::uint64_t super_packets(const FabricStatus& status) {
  std::uint64_t sum = 0;
  for (const SwitchStatus& one : status.switches) {
    for (const SwitchPortStatus& port : one.ports) {
      if (!port.program) continue;
      sum += port.program->counters.to_host().super_packets + port.program->counters.from_host.super_packets;
    }
  }
  return sum;
}

std::string ports_text(const FabricStatus& status) {
  std::string text = fmt::format(kRow, "port", "class", "packets", "bytes", "marked", "d.buffer", "selective", "loss",
                                 "trimmed", "largest", "super", "depth B", "deepest B");
  std::map<std::string, std::string> rules;  // and the ports that they are for
  std::uint64_t packets = 0, largest = 0, backstop = 0;
  bool programs = false;
  for (const SwitchStatus& one : status.switches) {
    for (const SwitchPortStatus& port : one.ports) {
      if (!port.program) continue;
      programs = true;
      const std::string place = port_place(one.name, port.peer);
      text += port_rows(place, port.program->counters);
      const std::string own = describe(port.program->rules);
      if (!own.empty()) rules[fmt::format("{} (seed {})", own, port.program->rules.seed)] += " " + place;
      const ClassCounters to = port.program->counters.to_host();
      const FromHostCounters& from = port.program->counters.from_host;
      packets += to.packets + to.dropped() + from.packets + from.dropped_loss;
      largest = std::max({largest, to.largest_bytes, from.largest_bytes});
      backstop += port.backstop_drops;
    }
  }
  if (!programs) {
    return fmt::format("buffer: {} (no switch program: no rules, one class)\n", to_string(status.buffer_kind));
  }
  std::size_t all = 0;
  for (const SwitchStatus& one : status.switches) all += one.ports.size();
  for (const auto& [what, ports] : rules) {
    const bool everywhere = static_cast<std::size_t>(std::count(ports.begin(), ports.end(), ' ')) == all;
    text += fmt::format("rules of{}: {}\n", everywhere ? " every port" : ports, what);
  }
  text += fmt::format("buffer: {}; {} drops behind it{}\n", to_string(status.buffer_kind), backstop,
                      backstop == 0 ? "" : " (THE CPU WAS BEHIND THE LINE: its figures are not the switch's)");
  return text + fmt::format("switch program: {} super-packets among {} packets at all ports, largest {} B\n",
                            super_packets(status), packets, largest);
}

json program_json(const SwitchPortStatus& port) {
  if (!port.program) return nullptr;
  const PortCounters& counters = port.program->counters;
  json classes = json::array();
  for (const ClassCounters& one : counters.classes) classes.push_back(class_json(one));
  return {{"program_id", port.program->program_id},
          {"rules", to_json(port.program->rules)},
          {"backstop_drops", port.backstop_drops},
          {"to_host", class_json(counters.to_host())},
          {"classes", classes},
          {"from_host",
           {{"packets", counters.from_host.packets},
            {"bytes", counters.from_host.bytes},
            {"dropped_loss", counters.from_host.dropped_loss},
            {"largest_packet_bytes", counters.from_host.largest_bytes},
            {"super_packets", counters.from_host.super_packets}}}};
}

}  // namespace clustar::bench::fabric
