#include "bench/ab/suite/place.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/ab/suite/background.h"
#include "bench/ab/suite/route_rto.h"
#include "bench/fabric/render_ports.h"
#include "bench/fabric/running.h"
#include "bench/lossy/kernel_tcp.h"
#include "bench/lossy/machine.h"
#include "bench/lossy/tool.h"
#include "bench/lossy/tune_hosts.h"
#include "bench/proxy/socket_io.h"
#include "bench/trainer/record.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;

constexpr const char* kBrokenContract = "the loss ledger was broken";

// Other seeds than those of the weights, so that nothing ties the two.
std::uint64_t loss_seed(const SuitePlan& plan, int round) {
  return 1000 + plan.training.train.seed + static_cast<std::uint64_t>(round);
}

Result<void> check_congestion(const std::string& name) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return lossy::set_congestion(socket.fd(), name);
}

json proof_json(const fabric::PacketProof& proof) {
  return {{"largest_frame_bytes", proof.largest_bytes},
          {"oversized_packets", proof.oversized_packets},
          {"complete", proof.complete()},
          {"per_packet", proof.per_packet()}};
}

}  // namespace

FabricPlace::FabricPlace(const SuitePlan& plan, std::function<void(const json&)> on_record)
    : plan_(plan), on_record_(std::move(on_record)) {}

Hands FabricPlace::hands() {
  return {.open = [this](const Scenario& scenario) { return open(scenario); },
          .run = [this](const Scenario& scenario, const SuiteArm& arm, int round) { return run(scenario, arm, round); },
          .close = [this] { close(); }};
}

Result<json> FabricPlace::open(const Scenario& scenario) {
  close();  // the next one has the same name
  const auto spec = fabric_of(scenario, "ab");
  if (!spec) return tl::unexpected(spec.error());
  auto made = Testbed::on_fabric(*spec, scenario.ranks);
  if (!made) return tl::unexpected(made.error());
  const fabric::Fabric& fabric = *made->fabric();
  if (const auto tuned = lossy::tune_tcp(fabric); !tuned) return tl::unexpected(tuned.error());
  const auto proof = fabric.prove();
  if (!proof) return tl::unexpected(proof.error());
  json facts{{"text", fabric::describe(fabric.spec())},
             {"mtu", fabric.spec().mtu},
             {"buffer_bytes", fabric.spec().buffer_bytes},
             {"proof", proof_json(*proof)},
             {"rto_min_set_by", kernel_has_rto_sysctl() ? "sysctl" : "routes"},
             {"kernel_congestion_control", made->congestion_control()}};
  // Only now: what is not whole goes with `made`.
  testbed_.emplace(std::move(*made));
  return facts;
}

// In the hosts of the ranks only: what others send is none of the arm's business.
Result<void> FabricPlace::set_tcp(const SuiteArm& arm, int ranks, bool on) const {
  lossy::Arm as_lossy{.name = arm.carrier.name,
                      .label = {},
                      .carrier = arm.carrier.is_tcp() ? lossy::Carrier::kClustarTcp : lossy::Carrier::kMlt};
  const bool by_route = arm.carrier.rto_min_us > 0 && !kernel_has_rto_sysctl();
  if (arm.carrier.rto_min_us > 0 && !by_route) as_lossy.rto_min_us = arm.carrier.rto_min_us;
  for (int host = 0; host < ranks; ++host) {
    const auto set = [&](const std::string& name, const std::string& value) {
      return lossy::set_sysctl(testbed_->fabric()->namespace_of(host), name, value);
    };
    const auto done = on ? lossy::set_kernel_tcp(as_lossy, set) : lossy::reset_kernel_tcp(as_lossy, set);
    if (!done) return done;
    if (!by_route) continue;
    const auto routed = set_route_rto(testbed_->fabric()->namespace_of(host), on ? arm.carrier.rto_min_us : 0);
    if (!routed) return routed;
  }
  return {};
}

Result<void> FabricPlace::begin_loss(const Scenario& scenario, std::uint64_t seed) const {
  for (const PortLoss& loss : scenario.losses) {
    const auto changed =
        fabric::change_rules(testbed_->fabric()->spec().name, loss.place, [&](fabric::PortRules& rules) {
          set_loss(loss, seed, rules);
          return Result<void>();
        });
    if (!changed) return tl::unexpected(changed.error());
  }
  return {};
}

// Rules that are set again start over, so the next run meets the same losses.
Result<void> FabricPlace::end_loss(const Scenario& scenario) const {
  if (scenario.losses.empty()) return {};
  const auto changed = fabric::change_rules(testbed_->fabric()->spec().name, "", [](fabric::PortRules& rules) {
    rules.to_host = rules.from_host = {};
    return Result<void>();
  });
  if (!changed) return tl::unexpected(changed.error());
  return {};
}

Result<json> FabricPlace::switch_counts() const {
  const auto status = testbed_->fabric()->status();
  if (!status) return tl::unexpected(status.error());
  std::uint64_t packets = 0, bytes = 0, lost = 0, full = 0, marked = 0;
  for (const fabric::SwitchStatus& one : status->switches) {
    for (const fabric::SwitchPortStatus& port : one.ports) {
      if (!port.program) continue;
      const fabric::ClassCounters to_host = port.program->counters.to_host();
      packets += to_host.packets;
      bytes += to_host.bytes;
      marked += to_host.marked;
      full += to_host.dropped_buffer;
      lost += to_host.dropped_loss + port.program->counters.from_host.dropped_loss;
    }
  }
  return json{{"switch_packets", packets},      {"switch_bytes", bytes},
              {"switch_marked", marked},        {"switch_dropped_full", full},
              {"switch_lost_on_purpose", lost}, {"super_packets", fabric::super_packets(*status)}};
}

Result<json> FabricPlace::train(const Scenario& scenario, const SuiteArm& arm, int round) {
  const Load load{plan_.largest_bucket_bytes, scenario.ranks, scenario.fabric.rate_bps};
  std::unique_ptr<BackgroundTraffic> others;
  if (scenario.background.senders > 0) {
    auto started = BackgroundTraffic::start(*testbed_->fabric(), scenario.background, scenario.ranks);
    if (!started) return tl::unexpected(started.error());
    others = std::move(*started);
  }
  Settings environment = environment_of(arm, load);
  environment["CLUSTAR_SOCKET_IFNAME"] = environment["NCCL_SOCKET_IFNAME"] = testbed_->interface();
  // From the first to the last that rank 0 tells of its training: what others get while it starts or ends is not beside
  // it.
  std::optional<BackgroundTraffic::Counts> first, last;
  const auto on_record = [&](const json& record) {
    if (on_record_) on_record_(record);
    trainer::Progress progress;
    if (others == nullptr || !trainer::from_record(record, progress)) return;
    // One that has ended is found after the run.
    if (const auto counts = others->counts()) (first ? last : first) = *counts;
  };
  auto results = testbed_->run({.arguments = train_arguments(plan_, arm, round),
                                .environment = environment,
                                .hosts = hosts_of(scenario, loss_seed(plan_, round)),
                                .on_record = on_record,
                                .limit = std::chrono::seconds(plan_.limit_s),
                                .keep_failed = true});
  if (!results) return tl::unexpected(results.error());
  json run = json::object();
  if (const json& failure = (*results)["failure"]; !failure.is_null()) {
    const std::string why = failure;
    // To break it is what that arm is there for.
    if (!arm.carrier.static_deadline || !why.starts_with(kBrokenContract)) return fail(ErrorCode::kRemote, why);
    run["contract_broken"] = why;
  }
  if (others != nullptr) {
    const auto counts = others->counts();
    if (!counts) return tl::unexpected(counts.error());
    const BackgroundTraffic::Counts beside = first && last ? last->since(*first) : *counts;
    run["background"] = {{"window", first && last ? "first to last progress of rank 0" : "whole run"},
                         {"seconds", beside.seconds},
                         {"goodput_bps", beside.goodput_bps()},
                         {"received_bytes", counts->received_bytes},
                         {"bursts", counts->bursts},
                         {"skipped_bursts", counts->skipped}};
  }
  run["train"] = std::move(*results);
  return run;
}

Result<json> FabricPlace::run(const Scenario& scenario, const SuiteArm& arm, int round) {
  if (!testbed_) return fail(ErrorCode::kInvalidUsage, "run() before open()");
  if (arm.carrier.is_tcp()) {
    if (const auto ok = check_congestion(arm.carrier.congestion); !ok) return tl::unexpected(ok.error());
  }
  if (const auto ok = set_tcp(arm, scenario.ranks, true); !ok) return tl::unexpected(ok.error());
  if (const auto ok = begin_loss(scenario, loss_seed(plan_, round)); !ok) return tl::unexpected(ok.error());
  if (const auto ok = fabric::reset_counters(testbed_->fabric()->spec().name); !ok) return tl::unexpected(ok.error());
  const lossy::OtherCpuWatch watch;
  auto run = train(scenario, arm, round);
  const auto other = watch.now();
  const auto counts = switch_counts();
  const auto ended = end_loss(scenario);
  const auto reset = set_tcp(arm, scenario.ranks, false);
  if (!run) return run;
  for (const auto* done : {&ended, &reset}) {
    if (!*done) return tl::unexpected(done->error());
  }
  if (!counts) return tl::unexpected(counts.error());
  run->update(*counts);
  (*run)["other_cpu_cores"] = other ? json(other->used) : json(nullptr);
  (*run)["other_cpu_disturbs"] = other && other->disturbs();
  return run;
}

}  // namespace clustar::bench::ab::suite
