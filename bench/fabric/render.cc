#include "bench/fabric/render.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/fabric/render_ports.h"

namespace clustar::bench::fabric {
namespace {

using nlohmann::json;

const char* form_of(const FabricSpec& spec) {
  if (!spec.links.empty()) return "file";
  return spec.spines != 0 ? "leaf-spine" : "single";
}

json spec_json(const FabricSpec& spec) {
  return {{"name", spec.name},
          {"hosts", spec.hosts},
          {"rate_bps", spec.rate_bps},
          {"shaping", spec.rate_bps == 0 ? "off" : "htb+bfifo"},
          {"buffer_bytes", spec.buffer_bytes},
          {"burst_bytes", spec.rate_bps == 0 ? 0 : burst_bytes(spec.rate_bps, spec.mtu)},
          {"mtu", spec.mtu},
          {"delay_ns", spec.delay_ns},
          {"topology", form_of(spec)},
          {"spines", spec.spines},
          {"leaves", spec.leaves},
          {"uplink_rate_bps", spec.uplink_rate_bps},
          {"uplink_buffer_bytes", spec.uplink_buffer_bytes}};
}

json traffic_json(const Traffic& traffic) {
  return {{"packets", traffic.packets},
          {"bytes", traffic.bytes},
          {"drops", traffic.drops},
          {"waiting_bytes", traffic.waiting_bytes}};
}

json processes_json(const std::vector<Inhabitant>& found) {
  json list = json::array();
  for (const Inhabitant& one : found) {
    list.push_back({{"pid", one.pid}, {"command", one.command}, {"namespace", one.where}});
  }
  return list;
}

json switch_json(const SwitchStatus& one) {
  json ports = json::array();
  for (const SwitchPortStatus& port : one.ports) {
    ports.push_back({{"interface", port.interface},
                     {"peer", port.peer},
                     {"up", port.up},
                     {"mtu", port.mtu},
                     {"rate_bps", port.rate_bps},
                     {"buffer_bytes", port.buffer_bytes},
                     {"sent", traffic_json(port.sent)},
                     {"received", {{"packets", port.received.packets}, {"bytes", port.received.bytes}}},
                     {"switch_program", program_json(port)}});
  }
  return {{"name", one.name}, {"namespace", one.net_namespace}, {"ports", ports}};
}

// Of the switch port towards the host.
json host_program_json(const FabricStatus& status, int host) {
  for (const SwitchStatus& one : status.switches) {
    for (const SwitchPortStatus& port : one.ports) {
      if (port.peer == host_name(host)) return program_json(port);
    }
  }
  return nullptr;
}

json delay_json(const DelayStatus& delay) {
  json directions = json::array();
  for (const DelayTraffic& one : delay.directions) {
    directions.push_back({{"from", one.from},
                          {"to", one.to},
                          {"delay_ns", one.delay_ns},
                          {"packets", one.packets},
                          {"drops", one.drops},
                          {"super_packets", one.super_packets},
                          {"waiting_packets", one.waiting_packets}});
  }
  return {{"carrier", to_string(delay.carrier)}, {"pid", delay.pid}, {"directions", directions}};
}

// One line in all; a line more for each direction that lost something.
std::string delay_text(const DelayStatus& delay) {
  std::string text = fmt::format("delay: {}", to_string(delay.carrier));
  if (delay.carrier == DelayCarrier::kNone) return text + "\n";
  std::uint64_t packets = 0;
  std::string losses;
  for (const DelayTraffic& one : delay.directions) {
    packets += one.packets;
    if (one.drops + one.super_packets == 0) continue;
    losses += fmt::format("delay: {} to {}: {} packets dropped, {} super-packets dropped\n", one.from, one.to,
                          one.drops, one.super_packets);
  }
  if (delay.pid != 0) text += fmt::format(" (pid {})", delay.pid);
  return text + fmt::format(" on {} links, {} packets\n", delay.directions.size() / 2, packets) + losses;
}

// The ports of hosts are in the table of hosts; here are all, switch by switch.
std::string switches_text(const FabricStatus& status) {
  if (status.switches.size() < 2) return {};
  std::string text =
      fmt::format("{:<8} {:<12} {:>4} {:>6} {:>5} {:>10} | {:>13} {:>15} {:>8} | {:>17} {:>15}\n", "switch", "port", "",
                  "rate", "MTU", "buffer B", "sent: packets", "bytes", "drops", "received: packets", "bytes");
  for (const SwitchStatus& one : status.switches) {
    for (const SwitchPortStatus& port : one.ports) {
      text +=
          fmt::format("{:<8} {:<12} {:>4} {:>6} {:>5} {:>10} | {:>13} {:>15} {:>8} | {:>17} {:>15}\n", one.name,
                      port.interface, port.up ? "up" : "DOWN", rate_text(port.rate_bps), port.mtu, port.buffer_bytes,
                      port.sent.packets, port.sent.bytes, port.sent.drops, port.received.packets, port.received.bytes);
    }
  }
  return text;
}

std::string proof_text(const std::optional<PacketProof>& proof) {
  if (!proof) return "queues: not measured\n";
  const std::string seen = fmt::format(
      "largest packet at the switch {} B, {} B allowed; {} of {} packets larger (burst of {} B from each host)",
      proof->largest_bytes, proof->allowed_bytes, proof->oversized_packets, proof->seen_packets, proof->burst_bytes);
  if (!proof->unseen_switches.empty() && proof->arrived_bytes > 0) {
    return fmt::format("queues: NOT PROVED of {}, which no packet passed; {}\n",
                       fmt::join(proof->unseen_switches, ", "), seen);
  }
  if (!proof->complete()) return fmt::format("queues: NOT PROVED, the burst did not get through; {}\n", seen);
  return fmt::format("queues: {}; {}\n", proof->per_packet() ? "per packet, proved" : "SUPER-PACKETS PASS", seen);
}

}  // namespace

std::string up_text(const Fabric& fabric, const UpReport& report) {
  const FabricSpec& spec = fabric.spec();
  const std::string before = report.change == Change::kRebuilt    ? fmt::format(" (was: {})", report.before)
                             : report.change == Change::kRepaired ? fmt::format(" ({})", report.before)
                                                                  : "";
  std::string text = fmt::format("fabric {} {} in {:.2f} s{}: {}\n", spec.name, to_string(report.change),
                                 report.seconds, before, describe(spec));
  if (report.delay != DelayCarrier::kNone) text += fmt::format("delay by {}\n", to_string(report.delay));
  if (!report.note.empty()) text += fmt::format("without rules and priorities: {}\n", report.note);
  const std::string name = spec.name == kDefaultName ? "" : fmt::format("--name {} ", spec.name);
  return text + fmt::format("hosts 0 to {} are {} to {}; run on one: clustar fabric exec {}0 -- ip addr\n",
                            spec.hosts - 1, fabric.address(0), fabric.address(spec.hosts - 1), name);
}

json up_json(const Fabric& fabric, const UpReport& report) {
  json results = spec_json(fabric.spec());
  results["change"] = to_string(report.change);
  results["before"] = report.before;
  results["seconds"] = report.seconds;
  results["note"] = report.note;
  results["delay_by"] = to_string(report.delay);
  results["switches"] = json::array();
  for (const std::string& one : fabric.switch_namespaces()) results["switches"].push_back(one);
  results["addresses"] = json::array();
  results["namespaces"] = json::array();
  for (int host = 0; host < fabric.hosts(); ++host) {
    results["addresses"].push_back(fabric.address(host));
    results["namespaces"].push_back(fabric.namespace_of(host));
  }
  return results;
}

std::string removed_text(const std::string& name, const Removed& removed) {
  if (removed.namespaces.empty()) return fmt::format("there is no fabric {}; nothing to remove\n", name);
  std::string text = fmt::format("fabric {} removed: {} namespaces\n", name, removed.namespaces.size());
  for (const Inhabitant& one : removed.ended) {
    text += fmt::format("ended {} (pid {}) in {}\n", one.command, one.pid, one.where);
  }
  return text;
}

json removed_json(const std::string& name, const Removed& removed) {
  return {
      {"name", name}, {"removed_namespaces", removed.namespaces}, {"ended_processes", processes_json(removed.ended)}};
}

std::string status_text(const FabricStatus& status, const std::optional<PacketProof>& proof) {
  std::string text = fmt::format("fabric {}: {}\n", status.spec.name, describe(status.spec));
  text +=
      fmt::format("{:<5} {:<14} {:>6} {:>5} {:>10} | {:>12} {:>15} {:>8} | {:>12} {:>15} {:>8}\n", "host", "address",
                  "rate", "MTU", "buffer B", "to: packets", "bytes", "drops", "from: packets", "bytes", "drops");
  for (const PortStatus& port : status.ports) {
    text += fmt::format("{:<5} {:<14} {:>6} {:>5} {:>10} | {:>12} {:>15} {:>8} | {:>12} {:>15} {:>8}\n",
                        fmt::format("h{}", port.host), port.address.empty() ? "-" : port.address,
                        rate_text(port.rate_bps), port.mtu, port.buffer_bytes, port.to_host.packets, port.to_host.bytes,
                        port.to_host.drops, port.from_host.packets, port.from_host.bytes, port.from_host.drops);
  }
  text += switches_text(status);
  text += delay_text(status.delay);
  for (const std::string& problem : status.problems) text += fmt::format("PROBLEM: {}\n", problem);
  text += ports_text(status);
  return text + proof_text(proof);
}

json status_json(const FabricStatus& status, const std::optional<PacketProof>& proof) {
  json results = spec_json(status.spec);
  results["problems"] = status.problems;
  results["buffer"] = to_string(status.buffer_kind);
  results["super_packets"] = super_packets(status);
  results["ports"] = json::array();
  for (const PortStatus& port : status.ports) {
    results["ports"].push_back({{"host", port.host},
                                {"namespace", port.host_namespace},
                                {"address", port.address},
                                {"mtu", port.mtu},
                                {"rate_bps", port.rate_bps},
                                {"host_rate_bps", port.host_rate_bps},
                                {"buffer_bytes", port.buffer_bytes},
                                {"to_host", traffic_json(port.to_host)},
                                {"from_host", traffic_json(port.from_host)},
                                {"switch_program", host_program_json(status, port.host)}});
  }
  results["switches"] = json::array();
  for (const SwitchStatus& one : status.switches) results["switches"].push_back(switch_json(one));
  results["delay"] = delay_json(status.delay);
  results["queues"] = nullptr;
  if (proof) {
    results["queues"] = {{"per_packet", proof->per_packet()},
                         {"largest_packet_bytes", proof->largest_bytes},
                         {"allowed_packet_bytes", proof->allowed_bytes},
                         {"oversized_packets", proof->oversized_packets},
                         {"seen_packets", proof->seen_packets},
                         {"burst_bytes", proof->burst_bytes},
                         {"arrived_bytes", proof->arrived_bytes},
                         {"unseen_switches", proof->unseen_switches}};
  }
  return results;
}

}  // namespace clustar::bench::fabric
