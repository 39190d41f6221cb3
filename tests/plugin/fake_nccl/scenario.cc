#include "tests/plugin/fake_nccl/scenario.h"

#include <fmt/format.h>

#include <atomic>

#include "nccl_plugin/abi/profiler.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;

constexpr std::size_t kMiB = std::size_t{1} << 20;

template <std::size_t N, class T>
const T& one_of(const T (&values)[N], Rng& rng) {
  return values[rng.below(N)];
}

Faults draw_faults(std::size_t transfers, Rng& rng) {
  Faults faults;
  const auto at = [&] { return static_cast<int>(rng.below(transfers == 0 ? 1 : transfers)); };
  switch (rng.below(9)) {
    case 0: faults.foreign_process = true; break;
    case 1: faults.null_task = true; break;
    case 2: faults.forged_task = reinterpret_cast<void*>(rng.next() | 1); break;
    case 3: faults.lose_step_event = at(); break;
    case 4: faults.skip_step = at(); break;
    case 5: faults.repeat_step = at(); break;
    case 6: faults.no_phandle = at(); break;
    case 7: faults.extra_transfers = 1; break;
    default: break;
  }
  return faults;
}

// One communicator's machinery.
struct Rank {
  Rank(Kind kind, const Communicator& drawn, nccl_plugin::Profiler& profiler,
       const std::shared_ptr<const nccl_plugin::LossPolicy>& policy, int version, CheckingWire::Setup setup,
       Tally& tally, Rng& rng)
      : comm(drawn),
        port(profiler, policy, comm, version),
        wire(complete(kind, std::move(setup), comm, *policy, version), tally, rng),
        core(comm, port, wire) {}

  static CheckingWire::Setup complete(Kind kind, CheckingWire::Setup setup, const Communicator& comm,
                                      const nccl_plugin::LossPolicy& policy, int version) {
    setup.comm = comm;
    setup.policy = &policy;
    setup.profiler_version = version;
    setup.answers = kind != Kind::kOldNccl;
    setup.pools_may_be_short = kind == Kind::kShortPools;
    setup.wrong_guard_percent = kind == Kind::kHostile ? 15 : 0;
    return setup;
  }

  Communicator comm;
  DirectPort port;
  CheckingWire wire;
  Core core;
  std::vector<std::shared_ptr<TaskRun>> graph;  // captured
};

// Events that no operation of ours made: other plugins' and other kinds, handles that never were, stops that come
// twice.
void make_noise(Rank& rank, const std::shared_ptr<TaskRun>& run, Rng& rng) {
  void* handle = nullptr;
  Event event;
  event.rank = rank.comm.rank;
  switch (rng.below(6)) {
    case 0: rank.port.stop(reinterpret_cast<void*>(rng.next() | 1)); break;
    case 1: rank.port.record(reinterpret_cast<void*>(rng.next() | 1), 9); break;
    case 2:
      if (run && run->api_event != nullptr) rank.port.stop(run->api_event);
      break;
    case 3:
      event.type = kEventProxyCtrl;
      rank.port.start(&handle, event);
      if (handle != nullptr) rank.port.stop(handle);
      break;
    case 4:
      event.type = kEventNetPlugin;
      event.parent = reinterpret_cast<void*>(rng.next());
      event.plugin_id = nccl_plugin::kNetEventId;
      rank.port.start(&handle, event);
      break;
    default: {
      // NCCL's own IB plugin asks with data of its own.
      std::uint64_t theirs[64] = {};
      event.type = kEventNetPlugin;
      event.parent = run ? run->event : nullptr;
      event.plugin_id = (std::int64_t{1} << 16) | 1;
      event.data = theirs;
      rank.port.start(&handle, event);
      if (handle != nullptr) rank.port.stop(handle);
      break;
    }
  }
}

std::vector<std::shared_ptr<TaskRun>> draw_launch(Rank& rank, bool hostile, bool exchange, Rng& rng) {
  std::vector<std::shared_ptr<TaskRun>> runs;
  const std::uint64_t many = rng.below(4) == 0 ? 1 + rng.below(4) : 1;  // a group of several
  for (std::uint64_t i = 0; i < many; ++i) {
    if (!rank.graph.empty() && rng.below(4) == 0) {
      runs.push_back(rank.core.replay(*rank.graph[rng.below(rank.graph.size())]));
      continue;
    }
    Task task = draw_task(rank.comm, rng, exchange);
    Faults faults;
    if (hostile && rng.below(3) == 0) faults = draw_faults(plan(rank.comm, task).front().transfers.size(), rng);
    task.captured = rng.below(12) == 0;
    auto run = rank.core.enqueue(task, faults);
    if (task.captured) rank.graph.push_back(run);
    // A graph is replayed while its own runs live: NCCL never shares one task between two launches.
    runs.push_back(task.captured ? rank.core.replay(*run) : run);
  }
  return runs;
}

void drive(Rank& rank, Kind kind, bool exchange, std::uint64_t launches, Rng& rng) {
  const bool hostile = kind == Kind::kHostile || kind == Kind::kShortPools;
  for (std::uint64_t i = 0; i < launches; ++i) {
    auto runs = draw_launch(rank, hostile, exchange, rng);
    rank.core.begin_launch(runs);
    // The progress thread may be ahead of the application's or far behind it.
    const std::uint64_t rounds = rng.below(3) == 0 ? rng.below(40) : 0;
    for (std::uint64_t k = 0; k < rounds; ++k) rank.core.progress();
    if (hostile && rng.below(4) == 0) make_noise(rank, runs.front(), rng);
    rank.core.end_launch(runs);
    const std::uint64_t behind = rng.below(2) == 0 ? 20'000 : rng.below(200);
    for (std::uint64_t k = 0; k < behind && rank.core.progress(); ++k) {
    }
  }
  std::uint64_t rounds = 0;
  while (rank.core.progress() && ++rounds < 10'000'000) {
  }
}

struct NetVersion {
  bool has_guard;
  bool knows_comm;
};

CheckingWire::Setup draw_setup(Kind kind, const PolicyTruth& truth, bool critical,
                               const nccl_plugin::LossPolicy& policy, Communicator& comm,
                               nccl_plugin::CommRegistry& registry, Rng& rng) {
  const bool v10 = kind == Kind::kOldNccl || rng.below(5) == 0;
  // Below v11 the net plugin is told no communicator, and its class reaches nobody else.
  if (v10) comm.traffic_class = -1;
  if (!v10) registry.add_net(comm.id, comm.traffic_class);
  CheckingWire::Setup setup;
  setup.truth = &truth;
  setup.critical = critical;
  setup.has_guard = !v10;
  const nccl_plugin::CommFacts facts{comm.id, comm.name, comm.ranks, comm.nodes, comm.rank, comm.traffic_class};
  setup.channel = {v10 ? 0 : comm.id, !v10, policy.channel_tolerance_ppm(facts)};
  if (rng.below(10) == 0) setup.channel.tolerance_ppm = 0;  // a transport that never loses
  return setup;
}

// To one rank, so that warm-up ends, and large enough to lose some.
Task draw_exchange(const Communicator& comm, Rng& rng) {
  Task task;
  task.function = task.collective_api = kSend;
  task.datatype = datatype_named("ncclFloat32");
  task.protocol = kSimple;
  task.peer = static_cast<int>((static_cast<std::uint64_t>(comm.rank) + 1) % comm.ranks);
  const std::uint64_t bytes = 128 * 1024 + rng.below(2 * kMiB);
  const std::uint64_t whole = 4096 * comm.channels;  // parts of one size
  task.count = (rng.below(2) == 0 ? bytes : bytes / whole * whole) / task.datatype.bytes;
  return task;
}

}  // namespace

Communicator draw_communicator(std::uint64_t id, Rng& rng) {
  static const char* const kNames[] = {"", "dp0", "dp_replica", "dp", "tp"};
  static const int kClasses[] = {-1, 160, 163, 167, 168, 200};
  static const std::size_t kBuffers[] = {256 * 1024, kMiB, 4 * kMiB};
  Communicator comm;
  comm.id = id;
  comm.name = one_of(kNames, rng);
  comm.ranks = 2 + static_cast<std::uint32_t>(rng.below(15));
  const bool paired = comm.ranks % 2 == 0 && rng.below(2) == 0;
  comm.nodes = paired ? comm.ranks / 2 : comm.ranks;
  if (rng.below(12) == 0) comm.nodes = 1;
  comm.rank = static_cast<int>(rng.below(comm.ranks));
  comm.traffic_class = one_of(kClasses, rng);
  comm.channels = 1 + static_cast<std::uint32_t>(rng.below(4));
  comm.buffer_bytes = one_of(kBuffers, rng);
  return comm;
}

Task draw_task(const Communicator& comm, Rng& rng, bool exchange) {
  if (exchange && rng.below(4) != 0) return draw_exchange(comm, rng);
  static const int kFunctions[] = {kAllReduce, kAllReduce, kAllReduce, kReduceScatter, kReduceScatter,
                                   kAllGather, kBroadcast, kReduce,    kSend,          kSend};
  static const int kAlgorithms[] = {kRing, kRing, kRing, kRing, kRing, kRing, kTree, kNvls};
  static const int kProtocols[] = {kSimple, kSimple, kSimple, kSimple, kSimple, kSimple, kLL, kLL128};
  Task task;
  task.function = one_of(kFunctions, rng);
  task.datatype = rng.below(3) == 0 ? datatypes()[rng.below(datatypes().size())] : datatype_named("ncclFloat32");
  task.algorithm = one_of(kAlgorithms, rng);
  task.protocol = one_of(kProtocols, rng);
  if ((task.function == kReduceScatter || task.function == kAllGather) && task.algorithm == kTree)
    task.algorithm = kPat;
  if (task.function == kSend) {
    static const int kApis[] = {kSend, kSend, kSend, kAlltoAll, kGather};
    task.collective_api = one_of(kApis, rng);
    const std::uint64_t next = static_cast<std::uint64_t>(comm.rank) + 1;  // that one often, so that warm-up ends
    task.peer = static_cast<int>((rng.below(2) == 0 ? next : rng.below(comm.ranks)) % comm.ranks);
    task.protocol = rng.below(5) == 0 ? kLL : kSimple;
  }
  // From next to nothing to three loops; the device's loop is a chunk of every rank on every channel.
  const bool parts = task.function == kReduceScatter || task.function == kAllGather;
  const std::uint64_t loop = comm.buffer_bytes / 2 * comm.channels * (parts ? 1 : comm.ranks);
  std::uint64_t bytes = 0;
  switch (rng.below(4)) {
    case 0: bytes = 1 + rng.below(4096); break;
    case 1: bytes = loop; break;
    default: bytes = 1 + rng.below(task.function == kSend ? 4 * kMiB : loop * (1 + rng.below(3))); break;
  }
  if (task.protocol == kLL && task.function != kSend) bytes = std::min<std::uint64_t>(bytes, loop / 16);
  task.count = std::max<std::uint64_t>(bytes / task.datatype.bytes, 1);
  if (task.function == kSend && rng.below(20) == 0) task.count = 0;
  return task;
}

void run_scenario(Kind kind, std::uint64_t seed, Tally& tally) {
  Rng rng(seed);
  const std::uint64_t failures_before = tally.failures;
  const std::size_t texts_before = tally.first_failures.size();
  // Settings that allow nothing are one in eight.
  const bool exchange = rng.below(6) == 0;
  const auto draw_policy = [&]() -> const PolicyTruth& {
    return policies()[rng.below(8) == 0 ? 0 : 1 + rng.below(policies().size() - 1)];
  };
  const PolicyTruth* drawn = &draw_policy();
  while (exchange && !drawn->sends) drawn = &draw_policy();
  const PolicyTruth& truth = *drawn;
  const auto made = nccl_plugin::LossPolicy::create(truth.config);
  if (!made) return tally.fail(fmt::format("seed {}: {}", seed, made.error().message));
  const auto policy = std::make_shared<const nccl_plugin::LossPolicy>(*made);
  nccl_plugin::CommRegistry registry;
  const std::atomic<bool> critical{rng.below(5) == 0};
  nccl_plugin::Profiler::Options options;
  if (kind == Kind::kShortPools) {
    options.collectives = 1 + static_cast<std::uint32_t>(rng.below(4));
    options.operations = 1 + static_cast<std::uint32_t>(rng.below(4));
    options.others = 2;
  }
  nccl_plugin::Profiler profiler(options, registry, critical);

  const int version = 4 + static_cast<int>(rng.below(3));
  std::vector<std::unique_ptr<Rank>> ranks;
  Communicator first = draw_communicator(0x1000 + rng.below(1u << 20), rng);
  const CheckingWire::Setup parent_setup = draw_setup(kind, truth, critical, *policy, first, registry, rng);
  ranks.push_back(std::make_unique<Rank>(kind, first, profiler, policy, version, parent_setup, tally, rng));
  if (rng.below(3) == 0) {
    // Split with shared resources: the parent's connections and net context, a profiler context of its own.
    Communicator child = draw_communicator(first.id + 1, rng);
    child.traffic_class = -1;  // the net plugin has no context of it
    ranks.push_back(std::make_unique<Rank>(kind, child, profiler, policy, version, parent_setup, tally, rng));
  }
  if (rng.below(3) == 0) {
    Communicator other = draw_communicator(first.id + 2, rng);
    const auto setup = draw_setup(kind, truth, critical, *policy, other, registry, rng);
    ranks.push_back(std::make_unique<Rank>(kind, other, profiler, policy, version, setup, tally, rng));
  }
  for (int turn = 0; turn < 4; ++turn) {
    for (auto& rank : ranks) drive(*rank, kind, exchange, 1 + rng.below(6), rng);
  }
  ranks.clear();
  if (profiler.counters().alive != 0 && kind == Kind::kClean) {
    tally.fail(fmt::format("{} events are left alive after all ended", profiler.counters().alive));
  }
  if (tally.failures == failures_before) return;
  for (std::size_t i = texts_before; i < tally.first_failures.size(); ++i) {
    tally.first_failures[i] =
        fmt::format("seed {}, kind {}: {}", seed, static_cast<int>(kind), tally.first_failures[i]);
  }
}

}  // namespace clustar::tests::fake_nccl
