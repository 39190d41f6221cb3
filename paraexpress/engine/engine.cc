#include "paraexpress/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>
#include <utility>

#include "paraexpress/core/fit.h"
#include "paraexpress/engine/farewell.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/plan_choice.h"
#include "paraexpress/engine/runner.h"

namespace clustar::paraexpress {
namespace {

using std::chrono::steady_clock;

constexpr Duration kPart = std::chrono::seconds(3);
constexpr Duration kPartFailed = std::chrono::seconds(1);

// Shared by who started it and the engine, so that either may go first.
struct State {
  std::mutex mutex{};
  std::condition_variable changed{};
  std::optional<Result<double>> outcome{};
  steady_clock::time_point start = steady_clock::now();

  void end(Result<double> result) {
    const std::lock_guard lock(mutex);
    outcome = std::move(result);
    changed.notify_all();
  }
};

class Started final : public Operation {
 public:
  explicit Started(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool done() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->outcome.has_value();
  }
  Result<double> wait() override {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->outcome.has_value(); });
    return *state_->outcome;
  }

 private:
  std::shared_ptr<State> state_;
};

struct Queued {
  Work work{};
  std::uint64_t bytes = 0;
  std::shared_ptr<State> state{};
};

class TheEngine final : public Engine {
 public:
  explicit TheEngine(const EngineOptions& options) : options_(options) {
    options_.channel.rank = static_cast<int>(options.rank);
  }
  ~TheEngine() override { close(); }

  Result<void> set_up(transport::Transport& transport, const AllGather& all_gather);

  Result<void> add_memory(void* memory, std::size_t bytes) override {
    if (memory == nullptr || bytes == 0) return fail(ErrorCode::kInvalidArgument, "no memory; allowed: 1 byte or more");
    const std::lock_guard lock(mutex_);
    if (failed_) return tl::unexpected(failed_->error);
    if (closed_) return fail(ErrorCode::kInvalidUsage, "the engine is closed");
    if (options_.ranks == 1) {
      memory_.push_back(std::make_unique<Registered>());
      memory_.back()->begin = static_cast<std::byte*>(memory);
      memory_.back()->bytes = bytes;
      return {};
    }
    auto registered = mesh_->reg_mr(memory, bytes);
    if (!registered) return tl::unexpected(registered.error());
    memory_.push_back(std::move(*registered));
    return {};
  }

  std::unique_ptr<Operation> all_reduce(void* elements, std::size_t count, DataType type,
                                        Reduction reduction) override {
    Work work;
    work.data = static_cast<std::byte*>(elements);
    work.count = count;
    work.type = type;
    work.reduction = reduction;
    return start(std::move(work), count, element_bytes(type));
  }
  std::unique_ptr<Operation> all_gather(void* blocks, std::size_t bytes) override {
    Work work;
    work.collective = Collective::kAllGather;
    work.data = static_cast<std::byte*>(blocks);
    work.count = bytes * options_.ranks;  // start() refuses what this is too large for
    work.type = DataType::kUint8;
    return start(std::move(work), bytes, options_.ranks);
  }

  Plan plan_for(std::uint64_t bytes) const override { return choice_->choose(bytes).plan; }
  EngineTraffic traffic() const override {
    const std::lock_guard lock(mutex_);
    return runner_ ? runner_->traffic() : traffic_;
  }

  void abort(const std::string& why) override {
    const std::lock_guard lock(mutex_);
    if (closed_ || failed_) return;
    failed_ = blame(options_.rank, {ErrorCode::kInvalidUsage, why});
    abort_ = true;
    wake_.notify_all();
  }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      if (busy_ || !queue_.empty()) {
        if (!failed_)
          failed_ = blame(options_.rank, {ErrorCode::kInvalidUsage, "it closed before its operations ended"});
        abort_ = true;
      }
      wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock(mutex_);
    for (const Queued& one : queue_) one.state->end(fail(ErrorCode::kInvalidUsage, "the engine is closed"));
    queue_.clear();
    take_down();
  }

 private:
  // Of `count` times `each` bytes.
  std::unique_ptr<Operation> start(Work work, std::uint64_t count, std::uint64_t each);
  // Nothing is read or written for anybody after it. With the mutex, while no operation runs.
  void take_down() {
    traffic_ = runner_ ? runner_->traffic() : traffic_;
    runner_.reset();
    farewells_.reset();
    memory_.clear();
    mesh_.reset();
  }
  void go_by(Work& work, const PlanChoice::Choice& choice) const;
  tl::expected<Measured, Blame> measure(const AllGather& all_gather);
  void serve();
  Blame verdict(const Blame& what, const std::optional<Blame>& heard) const;
  std::optional<Blame> run(Queued& one);

  EngineOptions options_;
  std::unique_ptr<Mesh> mesh_{};  // null: one rank alone
  std::unique_ptr<Farewells> farewells_{};
  std::optional<Runner> runner_{};
  std::optional<PlanChoice> choice_{};
  std::atomic<bool> abort_{false};

  mutable std::mutex mutex_{};
  std::condition_variable wake_{};
  std::deque<Queued> queue_{};
  std::vector<std::unique_ptr<Registered>> memory_{};
  std::optional<Blame> failed_{};
  EngineTraffic traffic_{};  // when it was closed
  bool busy_ = false, closed_ = false;
  std::thread thread_{};
};

Result<void> TheEngine::set_up(transport::Transport& transport, const AllGather& all_gather) {
  auto regions = options_.regions.empty() ? Result<RegionMap>(one_region(options_.ranks))
                                          : parse_region_map(options_.regions, options_.ranks, 0);
  if (!regions) return fail(ErrorCode::kInvalidArgument, "region map, line " + regions.error().message);
  const Group group = make_group(options_.ranks, 0, std::move(*regions));
  if (options_.plan && !makes_sense(*options_.plan, group)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("plan {}: {}; allowed here: direct, server, ring, double-tree{}", to_string(*options_.plan),
                            *options_.plan == Plan::kSharded ? "it needs helpers, and the engine has none"
                                                             : "it needs a region map of two regions or more",
                            group.regions.regions.size() > 1 ? ", hierarchical" : ""));
  }
  Network network;
  if (options_.ranks > 1) {
    auto mesh = Mesh::connect(transport, all_gather, options_);
    if (!mesh) return tl::unexpected(mesh.error());
    mesh_ = std::move(*mesh);
    farewells_ = std::make_unique<Farewells>(*mesh_, options_.rank, options_.ranks);
    if (const auto ok = farewells_->open(); !ok) return ok;
    runner_.emplace(*mesh_, *farewells_, options_, abort_);
    network.most_chunk_bytes = options_.chunk_bytes;
    network.least_chunk_bytes = std::min(network.least_chunk_bytes, network.most_chunk_bytes);
    choice_.emplace(group, options_, network);
    const auto measured = measure(all_gather);
    if (!measured) {
      const auto heard = farewells_->part(measured.error(), kPartFailed);
      return tl::unexpected(verdict(measured.error(), heard).error);
    }
    network = fit(group, *measured, network);
  }
  choice_.emplace(group, options_, network);
  thread_ = std::thread([this] { serve(); });
  return {};
}

// The slowest rank's view of the least time holds for all.
tl::expected<Measured, Blame> TheEngine::measure(const AllGather& all_gather) {
  constexpr std::uint64_t kSmall = 64, kLarge = 256 << 10;
  constexpr int kSmallRounds = 8, kLargeRounds = 3;
  std::vector<std::byte> memory(kLarge);
  auto registered = mesh_->reg_mr(memory.data(), memory.size());
  if (!registered) return tl::unexpected(blame(options_.rank, registered.error()));
  const auto least = [&](Plan plan, std::uint64_t bytes, int rounds) -> tl::expected<double, Blame> {
    double best = 1e9;
    for (int i = 0; i < rounds; ++i) {
      Work work;
      work.data = memory.data();
      work.count = bytes;
      work.type = DataType::kUint8;
      work.memory = registered->get();
      go_by(work, {plan, kMostChunk});
      const auto begin = steady_clock::now();
      if (const auto failed = runner_->run(work)) return tl::unexpected(*failed);
      best = std::min(best, std::chrono::duration<double>(steady_clock::now() - begin).count());
    }
    return best;
  };
  std::array<double, 3> mine{};
  std::size_t at = 0;
  for (const auto& [plan, bytes, rounds] : {std::tuple{Plan::kDirect, kSmall, kSmallRounds},
                                            {Plan::kRing, kSmall, kSmallRounds},
                                            {Plan::kDirect, kLarge, kLargeRounds}}) {
    const auto seconds = least(plan, bytes, rounds);
    if (!seconds) return tl::unexpected(seconds.error());
    mine[at++] = *seconds;
  }
  const auto all = all_gather(std::as_bytes(std::span(mine)));
  if (!all) return tl::unexpected(Blame{kNobody, all.error()});
  std::array<double, 3> slowest{};
  for (at = 0; at + sizeof mine <= all->size(); at += sizeof mine) {
    std::array<double, 3> one;
    std::memcpy(one.data(), all->data() + at, sizeof one);
    for (std::size_t i = 0; i < one.size(); ++i) slowest[i] = std::max(slowest[i], one[i]);
  }
  return Measured{kSmall, slowest[0], slowest[1], kLarge, slowest[2]};
}

void TheEngine::go_by(Work& work, const PlanChoice::Choice& choice) const {
  work.seat = &choice_->seat(choice.plan);
  work.ranges = element_ranges(choice_->forest(choice.plan), work.count);
  work.chunk = std::max<std::uint64_t>(choice.chunk_bytes / element_bytes(work.type), 1);
}

// What this rank cannot do fails the engine: the others would take its next operation for this one.
std::unique_ptr<Operation> TheEngine::start(Work work, std::uint64_t count, std::uint64_t each) {
  const std::uint64_t bytes = count * each;
  auto state = std::make_shared<State>();
  auto operation = std::make_unique<Started>(state);
  const std::lock_guard lock(mutex_);
  if (failed_ || closed_) {
    state->end(failed_ ? Result<double>(tl::unexpected(failed_->error))
                       : fail(ErrorCode::kInvalidUsage, "the engine is closed"));
  } else if (count == 0) {
    state->end(0.0);
  } else {
    const bool too_many = count > std::numeric_limits<std::uint64_t>::max() / each;
    for (const auto& one : memory_) {
      if (!too_many && one->holds(work.data, bytes)) work.memory = one.get();
    }
    if (work.memory == nullptr) {
      failed_ = blame(options_.rank, {ErrorCode::kInvalidArgument,
                                      "memory that was not added: call add_memory() for all of it first"});
      state->end(tl::unexpected(failed_->error));
      abort_ = true;
      wake_.notify_all();
      return operation;
    }
    if (options_.ranks == 1) {
      state->end(0.0);
      return operation;
    }
    queue_.push_back({std::move(work), bytes, std::move(state)});
    wake_.notify_all();
  }
  return operation;
}

std::optional<Blame> TheEngine::run(Queued& one) {
  const bool gathers = one.work.collective == Collective::kAllGather;
  try {
    go_by(one.work, gathers ? PlanChoice::Choice{Plan::kDirect, options_.chunk_bytes} : choice_->choose(one.bytes));
    return runner_->run(one.work);
  } catch (const std::bad_alloc&) {
    return blame(options_.rank, {ErrorCode::kSystem, "no memory is left for the partial sums"});
  }
}

// The engine's thread: it alone uses the channels.
void TheEngine::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return closed_ || failed_ || !queue_.empty(); });
    if (failed_ || queue_.empty()) break;
    Queued one = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    const auto found = run(one);
    lock.lock();
    busy_ = false;
    if (found && !failed_) failed_ = found;
    if (failed_) {
      queue_.push_front(std::move(one));
      break;
    }
    one.state->end(std::chrono::duration<double>(steady_clock::now() - one.state->start).count());
  }
  const std::optional<Blame> why = failed_;
  if (mesh_ != nullptr) {
    lock.unlock();
    const auto heard = farewells_->part(why, why ? kPartFailed : kPart);
    lock.lock();
    if (why) failed_ = verdict(*why, heard);
  }
  if (!why) return;
  // Only then is the memory of operations its owner's again.
  take_down();
  for (const Queued& one : queue_) one.state->end(tl::unexpected(failed_->error));
  queue_.clear();
}

// Who stalls may hear from others who is to blame.
Blame TheEngine::verdict(const Blame& what, const std::optional<Blame>& heard) const {
  if (what.guilty == kNobody && heard && heard->guilty != kNobody) return *heard;
  return farewells_->resolve(what);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(transport::Transport& transport, const AllGather& all_gather,
                                               const EngineOptions& options) {
  if (options.ranks < 1 || options.ranks > kMostRanks || options.rank >= options.ranks) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("rank {} of {}; allowed: 1 to {} ranks, numbered from 0",
                                                         options.rank, options.ranks, kMostRanks));
  }
  if (options.chunk_bytes < kLeastChunk || options.chunk_bytes > kMostChunk) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("chunks of {} bytes; allowed: {} to {}", options.chunk_bytes, kLeastChunk, kMostChunk));
  }
  auto engine = std::make_unique<TheEngine>(options);
  if (const auto ok = engine->set_up(transport, all_gather); !ok) return tl::unexpected(ok.error());
  return engine;
}

}  // namespace clustar::paraexpress
