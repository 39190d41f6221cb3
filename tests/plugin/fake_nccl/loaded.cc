#include "tests/plugin/fake_nccl/loaded.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/loss/settings.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;
using nccl_plugin::Reason;

constexpr int kStateRecvWait = 10;
constexpr int kStateRecvFlushWait = 11;
constexpr int kStateRecvGpuWait = 12;
constexpr int kStateOpInProgress = 19;

// No byte of it is zero, so that what the network lost can be told.
std::vector<std::byte> make_pattern(std::size_t size) {
  std::vector<std::byte> pattern(size);
  for (std::size_t i = 0; i < size; ++i) pattern[i] = static_cast<std::byte>(1 + (i * 31 + i / 255) % 255);
  return pattern;
}

Communicator of_rank(Communicator comm, int rank) {
  comm.rank = rank;
  return comm;
}

}  // namespace

bool JobTally::Zeros::operator<(const Zeros& other) const {
  return std::tie(receiver, number, channel, transfer) <
         std::tie(other.receiver, other.number, other.channel, other.transfer);
}

void JobTally::fail(const std::string& what) {
  ++errors;
  const std::lock_guard lock(mutex);
  if (first_error.empty()) first_error = what;
}

LoadedWire::LoadedWire(NetTable& net, const JobOptions& options, JobTally& tally)
    : net_(net),
      options_(options),
      tally_(tally),
      slot_bytes_(options.comm.buffer_bytes / 2),
      pattern_(make_pattern(slot_bytes_)),
      connections_(options.comm.channels) {
  const Communicator& comm = options.comm;
  // The connection's ceiling is the most that a rule allows any task of the communicator.
  Task most;
  most.datatype = datatype_named("ncclFloat32");
  most.count = std::uint64_t{1} << 40;
  std::uint32_t ceiling = options.policy->tolerance_ppm(comm, most);
  most.function = kReduceScatter;
  ceiling = std::max(ceiling, options.policy->tolerance_ppm(comm, most));
  most.function = kSend;
  if (options.policy->sends) ceiling = std::max(ceiling, options.policy->tolerance_ppm(comm, most));
  // Below v11 the net plugin never learns which communicator it serves, and so not its name or size.
  const bool knows = net.version() >= 11;
  truth_.channel = {knows ? comm.id : 0, knows, options.transport_may_lose && knows ? ceiling : 0};
  truth_.has_guard = net.has_net_attr();
  truth_.guard.op = truth_.guard.algo = truth_.guard.proto = kNetAttrUndefined;
}

LoadedWire::~LoadedWire() = default;

bool LoadedWire::check(int result, const char* call) {
  if (result == kSuccess) return true;
  tally_.fail(fmt::format("{} returned {}", call, result));
  return false;
}

void LoadedWire::listen(std::vector<Handle>& handles) {
  handles.resize(connections_.size());
  for (std::size_t c = 0; c < connections_.size(); ++c) {
    check(net_.listen(context, handles[c].data(), &connections_[c].listen), "listen");
  }
}

bool LoadedWire::connect(std::vector<Handle>& handles) {
  bool all = true;
  for (std::size_t c = 0; c < connections_.size(); ++c) {
    Connection& to = connections_[c];
    if (to.listen == nullptr && to.recv == nullptr) return true;  // it failed, and was counted
    if (to.send == nullptr) {
      tell_connection(c);
      if (!check(net_.connect(context, handles[c].data(), &to.send), "connect")) return true;
    }
    if (to.recv == nullptr) {
      tell_connection(c);
      if (!check(net_.accept(to.listen, &to.recv), "accept")) return true;
    }
    if (to.recv != nullptr && to.listen != nullptr) {
      check(net_.close_listen(to.listen), "closeListen");
      to.listen = nullptr;
    }
    all = all && to.send != nullptr && to.recv != nullptr;
  }
  return all;
}

// From the service thread, before each try; it must not be taken for the progress thread's. Sends have connections of
// their own in NCCL, whose attributes name all functions that are made of sends: the last channel's stands for them.
void LoadedWire::tell_connection(std::size_t channel) {
  NetAttr attr{};
  attr.op = attr.algo = attr.proto = kNetAttrUndefined;
  if (channel + 1 == connections_.size() && channel > 0) {
    attr.op = 1u << kSend | 1u << kRecv | 1u << kAlltoAll | 1u << kScatter | 1u << kGather;
  }
  if (!has_net_attr()) return;
  check(net_.set_net_attr(context, &attr), "setNetAttr");
  told = attr;
}

void LoadedWire::register_memory() {
  for (Connection& to : connections_) {
    if (to.send == nullptr || to.recv == nullptr) continue;
    to.slots.assign(kSlots * slot_bytes_, std::byte{0xee});
    check(net_.reg_mr(to.send, pattern_.data(), pattern_.size(), &to.send_mr), "regMr");
    check(net_.reg_mr(to.recv, to.slots.data(), to.slots.size(), &to.recv_mr), "regMr");
  }
}

void LoadedWire::close() {
  for (Connection& to : connections_) {
    if (to.send_mr != nullptr) check(net_.dereg_mr(to.send, to.send_mr), "deregMr");
    if (to.recv_mr != nullptr) check(net_.dereg_mr(to.recv, to.recv_mr), "deregMr");
    if (to.send != nullptr) check(net_.close_send(to.send), "closeSend");
    if (to.recv != nullptr) check(net_.close_recv(to.recv), "closeRecv");
    if (to.listen != nullptr) check(net_.close_listen(to.listen), "closeListen");
  }
}

void LoadedWire::set_net_attr(const NetAttr& attr) {
  NetAttr copy = attr;
  check(net_.set_net_attr(context, &copy), "setNetAttr");
  truth_.guard = attr;
  truth_.guard_spoke = true;
}

bool LoadedWire::isend(const ProxyOp& op, std::uint32_t transfer, void* phandle) {
  Connection& to = connections_[op.plan->channel];
  void* request = nullptr;
  const std::size_t size = op.transfer(transfer).bytes;
  if (!check(net_.isend(to.send, pattern_.data(), size, to.send_mr, phandle, &request), "isend")) return false;
  if (request == nullptr) return false;
  to.sends.push_back(request);
  count(op, transfer);
  return true;
}

void LoadedWire::count(const ProxyOp& op, std::uint32_t transfer) {
  Expectation expected = expect(*options_.policy, *speaking, options_.profiler_version, *op.run, op.plan->channel,
                                transfer, op.transfer(transfer), truth_);
  ++tally_.sent;
  if (options_.profiler_version == 0) expected.identified = false;
  if (expected.identified) ++tally_.identified;
  std::size_t first = 0;
  while (first < expected.against.size() && !expected.against.test(first)) ++first;
  if (first == expected.against.size()) first = static_cast<std::size_t>(Reason::kLossy);
  const bool off = options_.policy->config.rules.empty() && options_.policy->config.traffic_classes.empty();
  if (off) {
    first = static_cast<std::size_t>(Reason::kNotOptedIn);
  } else if (op.run->faults.foreign_process) {
    first = static_cast<std::size_t>(Reason::kForeignProcess);
  } else if (!expected.identified) {
    first = static_cast<std::size_t>(Reason::kUnidentified);
  }
  ++tally_.reasons[first];
}

bool LoadedWire::test(const ProxyOp& op) {
  Connection& to = connections_[op.plan->channel];
  int done = 0;
  int size = 0;
  if (to.sends.empty() || !check(net_.test(to.sends.front(), &done, &size), "test") || done == 0) return false;
  to.sends.pop_front();
  return true;
}

bool LoadedWire::post_receive(std::uint32_t channel, void* phandle) {
  Connection& from = connections_[channel];
  if (from.receives.size() == kSlots) return false;
  const std::size_t slot = from.posted % kSlots;
  void* request = nullptr;
  std::byte* const at = from.slots.data() + slot * slot_bytes_;
  if (!check(net_.irecv(from.recv, at, slot_bytes_, from.recv_mr, phandle, &request), "irecv")) return false;
  if (request == nullptr) return false;
  from.receives.emplace_back(request, slot);
  ++from.posted;
  return true;
}

bool LoadedWire::complete_receive(std::uint32_t channel, JobTally::Ranges& zeros) {
  Connection& from = connections_[channel];
  if (from.receives.empty()) return false;
  const auto [request, slot] = from.receives.front();
  int done = 0;
  int size = 0;
  if (!check(net_.test(request, &done, &size), "test") || done == 0) return false;
  from.receives.pop_front();
  const std::byte* const at = from.slots.data() + slot * slot_bytes_;
  for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
    if (at[i] == pattern_[i]) continue;
    if (at[i] != std::byte{0}) {
      tally_.fail(fmt::format("byte {} of {} is neither what was sent nor zero", i, size));
      return true;
    }
    if (zeros.empty() || zeros.back().first + zeros.back().second != i) zeros.emplace_back(i, 0);
    ++zeros.back().second;
    ++tally_.zero_bytes;
  }
  ++tally_.received;
  tally_.received_bytes += static_cast<std::uint64_t>(size);
  return true;
}

// The receiving half of recvProxyProgress for one communicator: events, irecv, test.
class Receiver {
 public:
  Receiver(ProfilerPort& profiler, LoadedWire& wire, Core& core)
      : profiler_(profiler), wire_(wire), core_(core), rank_(core.comm().rank) {}

  // Application thread, in launch order.
  void expect(const std::shared_ptr<TaskRun>& run) {
    const std::lock_guard lock(mutex_);
    for (const ChannelPlan& channel : run->plans) inbox_.push_back({run, &channel});
  }
  // Progress thread; false: nothing is left.
  bool progress() {
    {
      const std::lock_guard lock(mutex_);
      for (Op& op : inbox_) append(std::move(op));
      inbox_.clear();
    }
    bool left = false;
    for (auto& [channel, queue] : queues_) {
      if (queue.empty()) continue;
      left = true;
      Op& op = queue.front();
      if (!post(op)) complete(op);
      if (op.done != op.plan->transfers.size()) continue;
      if (op.event != nullptr) profiler_.stop(op.event);
      queue.pop_front();
    }
    return left;
  }

 private:
  struct Op {
    std::shared_ptr<TaskRun> run;
    const ChannelPlan* plan = nullptr;
    void* event = nullptr;
    std::unique_ptr<SubArgs> sub{};
    std::array<ProxyEventHandle, 8> handles{};
    std::size_t posted = 0;
    std::size_t done = 0;
  };
  bool wants() const { return (profiler_.mask() & (kEventProxyOp | kEventProxyStep | kEventNetPlugin)) != 0; }
  void append(Op op) {
    op.sub = std::make_unique<SubArgs>(SubArgs{&profiler_, 0, profiler_.mask(), op.run->faults.foreign_process});
    if (wants() && !op.run->faults.foreign_process) {
      Event event;
      event.type = kEventProxyOp;
      event.parent = op.run->event;
      event.pid = getpid();
      event.channel = op.plan->channel;
      event.steps = static_cast<int>(op.plan->transfers.size());
      event.is_send = false;
      profiler_.start(&op.event, event);
      record(op.event, kStateOpInProgress);
    }
    queues_[op.plan->channel].push_back(std::move(op));
  }
  bool post(Op& op) {
    if (op.posted == op.plan->transfers.size() || op.posted >= op.done + 4) return false;
    ProxyEventHandle& slot = op.handles[op.posted % op.handles.size()];
    slot.sub = op.sub.get();
    // Begun again where the last irecv gave no request, and the event before is never stopped.
    if (op.event != nullptr) {
      Event event;
      event.type = kEventProxyStep;
      event.parent = op.event;
      event.step = static_cast<int>(op.posted);
      profiler_.start(&slot.step_event, event);
    }
    core_.set_net_attr(op.run->task, false);
    if (!wire_.post_receive(op.plan->channel, &slot)) return false;
    record(slot.step_event, kStateRecvWait);
    ++op.posted;
    return true;
  }
  void complete(Op& op) {
    JobTally::Ranges zeros;
    if (op.done == op.posted || !wire_.complete_receive(op.plan->channel, zeros)) return;
    if (op.run->task.function == kRecv && !zeros.empty()) {
      JobTally& tally = wire_.tally();
      const std::lock_guard lock(tally.mutex);
      tally.zeros[{rank_, op.run->number, op.plan->channel, static_cast<std::uint32_t>(op.done)}] = std::move(zeros);
    }
    ProxyEventHandle& slot = op.handles[op.done % op.handles.size()];
    record(slot.step_event, kStateRecvFlushWait);
    record(slot.step_event, kStateRecvGpuWait);
    if (slot.step_event != nullptr) profiler_.stop(slot.step_event);
    slot.step_event = nullptr;
    ++op.done;
  }
  void record(void* event, int state) {
    if (event != nullptr) profiler_.record(event, state);
  }

  ProfilerPort& profiler_;
  LoadedWire& wire_;
  Core& core_;
  const int rank_;
  std::mutex mutex_;
  std::vector<Op> inbox_;  // guarded by mutex_
  std::map<int, std::deque<Op>> queues_;
};

class LoadedRank {
 public:
  LoadedRank(const Library& library, const JobOptions& options, int rank, JobTally& tally)
      : library_(library), options_(options), net_(library.net(options.net_version)), wire_(*net_, options_, tally) {
    const auto callback = options.profiler_version == 0 ? silent_callback : profiler_callback;
    const Communicator comm = of_rank(options.comm, rank);
    if (net_->init(&wire_.context, comm.id, comm.traffic_class, callback) != kSuccess) tally.fail("init");
    int devices = 0;
    if (net_->devices(&devices) != kSuccess || devices < 1) tally.fail("devices");
    add(comm);
  }
  ~LoadedRank() {
    stop_progress();
    service_.run([this] { wire_.close(); });
    // NCCL ends the profiler before the net plugin.
    members_.clear();
    net_->finalize(wire_.context);
  }
  void add(const Communicator& comm) {
    auto port = options_.profiler_version == 0 ? no_profiler() : library_.profiler(options_.profiler_version, comm);
    auto member = std::make_unique<Member>(comm, std::move(port), wire_);
    const std::lock_guard lock(members_mutex_);
    members_.push_back(std::move(member));
  }
  bench::proxy::ServiceThread& service() { return service_; }
  LoadedWire& wire() { return wire_; }
  Core& core(std::size_t comm) { return members_[comm]->core; }
  // A send with the receive from the rank before.
  void start(std::size_t comm, const std::shared_ptr<TaskRun>& run) {
    Member& member = *members_[comm];
    std::vector<std::shared_ptr<TaskRun>> runs{run};
    if (run->task.function == kSend) runs.push_back(receive_of(member.core, *run));
    member.core.begin_launch(runs);
    // The sender's number is this rank's own: all launch the same.
    if (runs.back() != run) runs.back()->number = run->number;
    member.receiver.expect(runs.back());
    member.core.end_launch(runs);
  }
  void start_progress() {
    progress_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::uint64_t asked = asked_;
        bool left = false;
        const std::lock_guard lock(members_mutex_);
        for (auto& member : members_) {
          wire_.speaking = &member->core.comm();
          left = member->core.progress() || left;
          left = member->receiver.progress() || left;
        }
        if (!left) idle_since_ = asked;
        std::this_thread::yield();
      }
    });
  }
  void stop_progress() {
    if (!progress_.joinable()) return;
    progress_.request_stop();
    progress_.join();
  }
  // Asks to be told when nothing is left of what was launched before.
  void ask() { ++asked_; }
  bool idle() const { return idle_since_ == asked_; }

 private:
  struct Member {
    Member(const Communicator& comm, std::unique_ptr<ProfilerPort> made, LoadedWire& wire)
        : port(std::move(made)), core(comm, *port, wire), receiver(*port, wire, core) {}
    std::unique_ptr<ProfilerPort> port;
    Core core;
    Receiver receiver;
  };

  static std::shared_ptr<TaskRun> receive_of(Core& core, const TaskRun& send) {
    Task task = send.task;
    task.function = kRecv;
    if (task.collective_api == kSend) task.collective_api = kRecv;
    const int ranks = static_cast<int>(core.comm().ranks);
    task.peer = (core.comm().rank + ranks - 1) % ranks;
    auto run = core.enqueue(task);
    run->faults.foreign_process = send.faults.foreign_process;
    return run;
  }

  const Library& library_;
  const JobOptions options_;
  std::unique_ptr<NetTable> net_;
  LoadedWire wire_;
  std::mutex members_mutex_;
  std::vector<std::unique_ptr<Member>> members_;  // grows by the application's thread; guarded by members_mutex_
  std::atomic<std::uint64_t> asked_{1};
  std::atomic<std::uint64_t> idle_since_{0};
  bench::proxy::ServiceThread service_;
  std::jthread progress_;
};

Job::Job(const Library& library, const JobOptions& options) {
  const int n = static_cast<int>(options.comm.ranks);
  std::vector<std::vector<Handle>> handles(options.comm.ranks);
  for (int r = 0; r < n; ++r) {
    ranks_.push_back(std::make_unique<LoadedRank>(library, options, r, tally_));
  }
  for (int r = 0; r < n; ++r) {
    LoadedRank& rank = *ranks_[static_cast<std::size_t>(r)];
    rank.service().run([&] { rank.wire().listen(handles[static_cast<std::size_t>(r)]); });
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (bool all = false; !all;) {
    all = true;
    for (int r = 0; r < n; ++r) {
      LoadedRank& rank = *ranks_[static_cast<std::size_t>(r)];
      auto& next = handles[static_cast<std::size_t>((r + 1) % n)];
      all = rank.service().run([&] { return rank.wire().connect(next); }) && all;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      tally_.fail("the ring did not connect in 20 s");
      return;
    }
  }
  for (auto& rank : ranks_) {
    rank->service().run([&] { rank->wire().register_memory(); });
    rank->start_progress();
  }
}

Job::~Job() = default;

void Job::split(const Communicator& comm) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->add(of_rank(comm, static_cast<int>(r)));
}

void Job::launch(std::size_t comm, const Task& task, const Faults& faults) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Task own = task;
    if (task.function == kSend) own.peer = static_cast<int>((r + 1) % ranks_.size());
    const auto run = ranks_[r]->core(comm).enqueue(own, r == 0 ? faults : Faults{});
    ranks_[r]->start(comm, run);
  }
}

void Job::replay(std::size_t comm, const Task& task, int times) {
  Task captured = task;
  captured.captured = true;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    auto& rank = ranks_[r];
    if (task.function == kSend) captured.peer = static_cast<int>((r + 1) % ranks_.size());
    const auto graph = rank->core(comm).enqueue(captured);
    for (int i = 0; i < times; ++i) {
      const auto run = rank->core(comm).replay(*graph);
      rank->start(comm, run);
    }
  }
}

bool Job::run(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (auto& rank : ranks_) rank->ask();
  const auto all_idle = [&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->idle(); });
  };
  while (!all_idle() && tally_.errors == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return all_idle();
}

}  // namespace clustar::tests::fake_nccl
