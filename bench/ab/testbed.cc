#include "bench/ab/testbed.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/ab/arm.h"
#include "bench/ab/cluster/ranks.h"
#include "bench/ab/interrupt.h"
#include "bench/fabric/process_fabric.h"
#include "bench/proxy/bootstrap.h"
#include "bench/trainer/aggregator.h"
#include "bench/trainer/launcher.h"
#include "bench/trainer/record.h"

namespace clustar::bench::ab {
namespace {

using nlohmann::json;

constexpr const char* kPrefix = "ab";
constexpr int kFirstPort = 21000;
constexpr int kPorts = 8000;
constexpr int kClusterPorts = 1000;  // from --root's on

void tidy_up() {
  for (const std::string& problem : fabric::remove_orphans(kPrefix)) {
    std::cerr << fmt::format("clustar ab: left of an earlier run: {}\n", problem);
  }
}

}  // namespace

Result<Testbed> Testbed::on_fabric(fabric::FabricSpec spec, int ranks) {
  if (const auto ok = fabric::check_root(); !ok) return tl::unexpected(ok.error());
  tidy_up();
  spec.name = fabric::process_fabric_name(kPrefix);
  auto made = fabric::Fabric::up(spec);
  if (!made) return tl::unexpected(made.error());
  Testbed testbed(ranks > 0 ? ranks : spec.hosts);
  testbed.fabric_ = std::move(*made);
  return testbed;
}

Testbed Testbed::on_loopback(int ranks) { return Testbed(ranks); }

Testbed Testbed::on_cluster(cluster::Spec spec, int ranks) {
  Testbed testbed(ranks);
  testbed.cluster_ = std::move(spec);
  return testbed;
}

Result<Testbed> Testbed::make(const std::optional<cluster::Spec>& cluster,
                              const std::optional<fabric::FabricSpec>& fabric, int ranks) {
  if (cluster) return on_cluster(*cluster, ranks);
  return fabric ? on_fabric(*fabric, ranks) : Result<Testbed>(on_loopback(ranks));
}

Testbed::Testbed(Testbed&& other) noexcept
    : ranks_(other.ranks_),
      fabric_(std::exchange(other.fabric_, std::nullopt)),
      cluster_(std::move(other.cluster_)),
      runs_(other.runs_) {}

Testbed::~Testbed() {
  if (!fabric_) return;
  const auto removed = fabric_->down();
  if (!removed) {
    std::cerr << fmt::format("clustar ab: cannot remove its fabric: {}; try: clustar fabric down --name {}\n",
                             removed.error().message, fabric_->spec().name);
  }
}

std::string Testbed::congestion_control() const {
  std::string name;
  // The kernel shows each thread the values of the network namespace that it is in.
  const auto read = [&]() -> Result<void> {
    std::ifstream in("/proc/sys/net/ipv4/tcp_congestion_control");
    std::getline(in, name);
    return {};
  };
  if (!fabric_) {
    (void)read();
  } else {
    (void)fabric::run_inside(fabric_->namespace_of(0), read);
  }
  return name.empty() ? "unknown" : name;
}

Result<SwitchCounters> Testbed::counters() const {
  SwitchCounters sum;
  if (!fabric_) return sum;
  const auto status = fabric_->status();
  if (!status) return tl::unexpected(status.error());
  for (const fabric::PortStatus& port : status->ports) {
    sum.packets += port.to_host.packets;
    sum.bytes += port.to_host.bytes;
    sum.drops += port.to_host.drops;
  }
  return sum;
}

Result<std::optional<fabric::PacketProof>> Testbed::prove() const {
  if (!fabric_) return std::nullopt;
  const auto proof = fabric_->prove();
  if (!proof) return tl::unexpected(proof.error());
  return *proof;
}

std::string Testbed::program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "/proc/self/exe" : path.string();
}

std::vector<std::string> Testbed::words_on(int host) const {
  const std::string executable = program();
  if (!fabric_) return {executable};
  return {executable, "fabric", "exec", "--name", fabric_->spec().name, std::to_string(host), "--", executable};
}

std::string Testbed::next_root(int host) {
  return fmt::format("{}:{}", fabric_->address(host), kFirstPort + runs_++ % kPorts);
}

Result<std::string> Testbed::free_root() {
  if (fabric_) return next_root(0);
  return proxy::Bootstrap::pick_loopback_root();
}

Result<json> Testbed::run_on_cluster(const Job& job) {
  cluster::Training training;
  training.program = program();
  training.arguments = job.arguments;
  // What other hosts do not inherit from here; the arm's own settings go before it.
  training.environment = job.environment;
  for (const auto& [name, value] : inherited_settings()) training.environment.emplace(name, value);
  training.ranks = job.ranks > 0 ? job.ranks : ranks_;
  training.limit = job.limit;
  training.interrupted = [] { return Interrupt::signal_number(); };
  training.on_record = job.on_record;
  const int run = runs_++ % kClusterPorts;
  if (!cluster_->root_host.empty())
    training.root = fmt::format("{}:{}", cluster_->root_host, cluster_->root_port + run);
  if (cluster_->starter == cluster::Starter::kTorchrun) {
    for (std::string* free : {&training.root, &training.port}) {
      const auto found = proxy::Bootstrap::pick_loopback_root();
      if (!found) return tl::unexpected(found.error());
      *free = *found;
    }
    training.port.erase(0, training.port.rfind(':') + 1);
  }
  return cluster::train(*cluster_, training);
}

Result<json> Testbed::run_here(const Job& job) {
  const auto host_of = [&](int rank) {
    return static_cast<std::size_t>(rank) < job.hosts.size() ? job.hosts[static_cast<std::size_t>(rank)] : rank;
  };
  const auto root = fabric_ ? next_root(host_of(0)) : proxy::Bootstrap::pick_loopback_root();
  if (!root) return tl::unexpected(root.error());
  trainer::ParaexpressOptions with_helpers{.helpers = job.helpers};
  if (job.helpers > 0) {
    const auto meeting = free_root();
    if (!meeting) return tl::unexpected(meeting.error());
    with_helpers.helpers_root = *meeting;
  }
  json results;
  trainer::LaunchOptions launch;
  const int ranks = job.ranks > 0 ? job.ranks : ranks_;
  launch.ranks = ranks;
  launch.helpers = job.helpers;
  launch.environment = job.environment;
  launch.limit = job.limit;
  launch.arguments = [&](int rank) {
    std::vector<std::string> arguments = words_on(host_of(rank));
    if (rank >= ranks) {
      const auto its = trainer::aggregator_arguments("", with_helpers, ranks, rank - ranks, job.stall_timeout);
      arguments.insert(arguments.end(), its.begin() + 1, its.end());
      return arguments;
    }
    arguments.insert(arguments.end(), {"train", "--rank", std::to_string(rank), "--size", std::to_string(ranks),
                                       "--root", *root, "--report-fd", std::to_string(trainer::kReportFd)});
    arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
    if (job.helpers > 0) arguments.insert(arguments.end(), {"--helpers-root", with_helpers.helpers_root});
    return arguments;
  };
  launch.on_record = [&](int rank, const json& record) {
    if (rank != 0) return;
    if (record.contains("results")) results = record["results"];
    if (job.on_record) job.on_record(record);
  };
  if (const auto ok = trainer::launch(launch); !ok) return tl::unexpected(ok.error());
  if (results.is_null()) return fail(ErrorCode::kInternal, "rank 0 ended without results");
  return results;
}

Result<json> Testbed::run(const Job& job) {
  auto results = cluster_ ? run_on_cluster(job) : run_here(job);
  if (!results) return results;
  if (!(*results)["failure"].is_null() && !job.keep_failed)
    return fail(ErrorCode::kInternal, (*results)["failure"].get<std::string>());
  return results;
}

}  // namespace clustar::bench::ab
