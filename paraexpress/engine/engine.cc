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

#include "paraexpress/core/agreement.h"
#include "paraexpress/core/fit.h"
#include "paraexpress/engine/farewell.h"
#include "paraexpress/engine/helper_lines.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/plan_choice.h"
#include "paraexpress/engine/probe.h"
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

  Plan plan_for(std::uint64_t bytes) const override { return choice()->choose(bytes).plan; }
  std::uint32_t helpers() const override {
    const std::lock_guard lock(mutex_);
    return group_.helpers;
  }
  std::string regions() const override {
    const std::lock_guard lock(mutex_);
    return to_text(group_.regions, options_.ranks);
  }
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
    if (mesh_ == nullptr) return memory_.clear();
    runner_->release();
    mesh_->close();
    runner_.reset();
    lines_.reset();
    farewells_.reset();
    memory_.clear();
    scratch_mr_.reset();
    mesh_.reset();
  }
  // Which plan for what, of the ranks and the helpers that are there.
  std::shared_ptr<const PlanChoice> choice() const {
    const std::lock_guard lock(mutex_);
    return choice_;
  }
  void choose_for(const Group& group);
  void go_by(const PlanChoice& by, Work& work, const PlanChoice::Choice& choice);
  std::optional<Blame> run(const Work& work) { return runner_->run(work); }
  // Memory for what the engine has to say itself.
  Result<std::byte*> scratch(std::size_t bytes);
  tl::expected<Measured, Blame> measure();
  tl::expected<RegionMap, Blame> find();
  // Each element's maximum over all ranks.
  std::optional<Blame> agree(std::byte* elements, std::size_t count, DataType type);
  void serve();
  Blame verdict(const Blame& what, const std::optional<Blame>& heard) const;
  std::optional<Blame> run(Queued& one);
  // With helpers: rank 0 tells them first, and all ranks see in the end whether one was lost, and make up for it.
  std::optional<Blame> run_with_helpers(const Work& work, const Forest& forest);
  void order(const Work& work, Plan plan);
  std::optional<Blame> make_up(const Work& work, const ElementRange& range, const HelperFate& fate);

  EngineOptions options_;
  std::unique_ptr<Mesh> mesh_{};  // null: one rank alone
  std::unique_ptr<Farewells> farewells_{};
  std::unique_ptr<HelperLines> lines_{};
  std::optional<Runner> runner_{};
  // Of the engine's thread.
  Network network_{};
  std::uint64_t number_ = 0;                   // of the last operation
  std::vector<std::uint32_t> helpers_{};       // those that are there
  std::shared_ptr<const PlanChoice> plain_{};  // without helpers
  std::vector<std::byte> scratch_{};
  std::unique_ptr<Registered> scratch_mr_{};
  std::atomic<bool> abort_{false};

  mutable std::mutex mutex_{};
  std::condition_variable wake_{};
  Group group_{};
  std::shared_ptr<const PlanChoice> choice_{};
  std::deque<Queued> queue_{};
  std::vector<std::unique_ptr<Registered>> memory_{};
  std::optional<Blame> failed_{};
  EngineTraffic traffic_{};  // when it was closed
  bool busy_ = false, closed_ = false;
  std::thread thread_{};
};

Result<void> TheEngine::set_up(transport::Transport& transport, const AllGather& all_gather) {
  const std::uint32_t ranks = options_.ranks, members = ranks + options_.helpers;
  const bool probes = options_.regions == kProbeRegions;
  auto regions = options_.regions.empty() || probes ? Result<RegionMap>(one_region(members))
                                                    : parse_region_map(options_.regions, ranks, options_.helpers);
  if (!regions) return fail(ErrorCode::kInvalidArgument, "region map, line " + regions.error().message);
  Group group = make_group(ranks, options_.helpers, std::move(*regions));
  if (options_.plan && !makes_sense(*options_.plan, group)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("plan {}: {}; allowed here: direct, server, ring, double-tree{}{}", to_string(*options_.plan),
                    *options_.plan == Plan::kSharded ? "it needs helpers and two ranks or more"
                                                     : "it needs a region map of two regions or more",
                    group.regions.regions.size() > 1 ? ", hierarchical" : "",
                    group.helpers > 0 && ranks > 1 ? ", sharded" : ""));
  }
  if (probes && options_.helpers > 0) {
    return fail(ErrorCode::kInvalidArgument,
                "probing for regions finds no helpers; allowed with helpers: a region map");
  }
  for (std::uint32_t helper = 0; helper < options_.helpers; ++helper) helpers_.push_back(helper);
  if (ranks > 1) {
    auto mesh =
        Mesh::connect(transport, all_gather,
                      {options_.rank, ranks, options_.helpers, options_.device, options_.stall, options_.channel});
    if (!mesh) return tl::unexpected(mesh.error());
    mesh_ = std::move(*mesh);
    farewells_ = std::make_unique<Farewells>(*mesh_, options_.rank, ranks);
    if (const auto ok = farewells_->open(); !ok) return ok;
    lines_ = std::make_unique<HelperLines>(*mesh_, ranks, options_.helpers);
    if (const auto ok = lines_->open(); !ok) return ok;
    runner_.emplace(*mesh_, *farewells_, lines_.get(), RunnerOptions{options_.rank, ranks, members, options_.stall},
                    abort_);
    network_.most_chunk_bytes = options_.chunk_bytes;
    network_.least_chunk_bytes = std::min(network_.least_chunk_bytes, network_.most_chunk_bytes);
    choose_for(group);
    const auto measured = measure();
    if (!measured) {
      const auto heard = farewells_->part(measured.error(), kPartFailed);
      return tl::unexpected(verdict(measured.error(), heard).error);
    }
    if (probes) {
      auto found = find();
      if (!found) {
        const auto heard = farewells_->part(found.error(), kPartFailed);
        return tl::unexpected(verdict(found.error(), heard).error);
      }
      group = make_group(ranks, 0, std::move(*found));
    }
    network_ = fit(without_helpers(group, std::vector<bool>(group.helpers, true)), *measured, network_);
  }
  choose_for(group);
  thread_ = std::thread([this] { serve(); });
  return {};
}

// All ranks work it out of the same numbers.
tl::expected<RegionMap, Blame> TheEngine::find() {
  const auto agreed = [this](std::span<double> numbers) -> std::optional<Blame> {
    const auto memory = scratch(numbers.size_bytes());
    if (!memory) return blame(options_.rank, memory.error());
    std::memcpy(*memory, numbers.data(), numbers.size_bytes());
    if (auto failed = agree(*memory, numbers.size(), DataType::kFloat64)) return failed;
    std::memcpy(numbers.data(), *memory, numbers.size_bytes());
    return std::nullopt;
  };
  auto probed = probe(*mesh_, *farewells_, options_.rank, options_.ranks, options_.stall, agreed);
  if (!probed) return tl::unexpected(probed.error());
  return find_regions(options_.ranks, *probed).map;
}

void TheEngine::choose_for(const Group& group) {
  EngineOptions options = options_;
  const Group plain = without_helpers(group, std::vector<bool>(group.helpers, true));
  // What the user asked for may have been of helpers that are gone: without them it is this plan.
  if (options.plan && !makes_sense(*options.plan, group)) options.plan = Plan::kDirect;
  auto choice = std::make_shared<const PlanChoice>(group, options, network_);
  if (options.plan && !makes_sense(*options.plan, plain)) options.plan = Plan::kDirect;
  plain_ = group.helpers == 0 ? choice : std::make_shared<const PlanChoice>(plain, options, network_);
  const std::lock_guard lock(mutex_);
  group_ = group;
  choice_ = std::move(choice);
}

Result<std::byte*> TheEngine::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) {
    scratch_mr_.reset();
    scratch_.resize(bytes);
    auto registered = mesh_->reg_mr(scratch_.data(), scratch_.size());
    if (!registered) return tl::unexpected(registered.error());
    scratch_mr_ = std::move(*registered);
  }
  return scratch_.data();
}

std::optional<Blame> TheEngine::agree(std::byte* elements, std::size_t count, DataType type) {
  Work work;
  work.data = elements;
  work.count = count;
  work.type = type;
  work.reduction = Reduction::kMax;
  work.memory = scratch_mr_.get();
  go_by(*plain_, work, plain_->choose(count * element_bytes(type)));
  return run(work);
}

// The slowest rank's view of the least time holds for all.
tl::expected<Measured, Blame> TheEngine::measure() {
  constexpr std::uint64_t kSmall = 64, kLarge = 256 << 10;
  constexpr int kSmallRounds = 8, kLargeRounds = 3;
  const auto memory = scratch(kLarge);
  if (!memory) return tl::unexpected(blame(options_.rank, memory.error()));
  const auto least = [&](Plan plan, std::uint64_t bytes, int rounds) -> tl::expected<double, Blame> {
    double best = 1e9;
    for (int i = 0; i < rounds; ++i) {
      Work work;
      work.data = *memory;
      work.count = bytes;
      work.type = DataType::kUint8;
      work.memory = scratch_mr_.get();
      go_by(*plain_, work, {plan, kMostChunk});
      const auto begin = steady_clock::now();
      if (const auto failed = run(work)) return tl::unexpected(*failed);
      best = std::min(best, std::chrono::duration<double>(steady_clock::now() - begin).count());
    }
    return best;
  };
  std::array<double, 3> slowest{};
  std::size_t at = 0;
  for (const auto& [plan, bytes, rounds] : {std::tuple{Plan::kDirect, kSmall, kSmallRounds},
                                            {Plan::kRing, kSmall, kSmallRounds},
                                            {Plan::kDirect, kLarge, kLargeRounds}}) {
    const auto seconds = least(plan, bytes, rounds);
    if (!seconds) return tl::unexpected(seconds.error());
    slowest[at++] = *seconds;
  }
  std::memcpy(*memory, slowest.data(), sizeof slowest);
  if (const auto failed = agree(*memory, slowest.size(), DataType::kFloat64)) return tl::unexpected(*failed);
  std::memcpy(slowest.data(), *memory, sizeof slowest);
  return Measured{kSmall, slowest[0], slowest[1], kLarge, slowest[2]};
}

void TheEngine::go_by(const PlanChoice& by, Work& work, const PlanChoice::Choice& choice) {
  work.seat = &by.seat(choice.plan);
  work.ranges = element_ranges(by.forest(choice.plan), work.count);
  work.chunk = std::max<std::uint64_t>(choice.chunk_bytes / element_bytes(work.type), 1);
  work.number = ++number_;
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
    if (gathers) {
      go_by(*plain_, one.work, {Plan::kDirect, options_.chunk_bytes});
      return run(one.work);
    }
    // It lives until the operation has ended, though a helper be lost.
    const std::shared_ptr<const PlanChoice> by = choice();
    const PlanChoice::Choice chosen = by->choose(one.bytes);
    go_by(*by, one.work, chosen);
    const Forest& forest = by->forest(chosen.plan);
    const bool helped =
        std::ranges::any_of(forest.shards, [&](const Shard& shard) { return !forest.is_rank(shard.root); });
    if (!helped) return run(one.work);
    one.work.helpers = helpers_;
    if (options_.rank == 0) order(one.work, chosen.plan);
    return run_with_helpers(one.work, forest);
  } catch (const std::bad_alloc&) {
    return blame(options_.rank, {ErrorCode::kSystem, "no memory is left for the partial sums"});
  }
}

void TheEngine::order(const Work& work, Plan plan) {
  Order order;
  order.number = work.number;
  for (const std::uint32_t helper : helpers_) order.live |= std::uint64_t{1} << helper;
  order.plan = static_cast<std::uint8_t>(plan);
  order.type = static_cast<std::uint8_t>(work.type);
  order.reduction = static_cast<std::uint8_t>(work.reduction);
  order.count = work.count;
  order.chunk = work.chunk;
  for (const std::uint32_t helper : helpers_) lines_->order(helper, order);
}

std::optional<Blame> TheEngine::run_with_helpers(const Work& work, const Forest& forest) {
  if (auto failed = run(work)) return failed;
  std::vector<ElementRange> ranges(helpers_.size());
  for (std::size_t i = 0; i < forest.shards.size(); ++i) {
    if (const Member root = forest.shards[i].root; !forest.is_rank(root))
      ranges[root - options_.ranks] = work.ranges[i];
  }
  std::vector<HelperView> views;
  for (std::size_t i = 0; i < helpers_.size(); ++i) {
    const bool lost = lines_->lost(helpers_[i]);
    views.push_back({lost, lost ? runner_->came_from(helpers_[i]) : ranges[i].size()});
  }
  std::vector<std::uint64_t> numbers = encode_views(views, options_.rank);
  const auto memory = scratch(numbers.size() * sizeof(std::uint64_t));
  if (!memory) return blame(options_.rank, memory.error());
  std::memcpy(*memory, numbers.data(), numbers.size() * sizeof(std::uint64_t));
  if (auto failed = agree(*memory, numbers.size(), DataType::kUint64)) return failed;
  std::memcpy(numbers.data(), *memory, numbers.size() * sizeof(std::uint64_t));
  const std::vector<HelperFate> fates = decode_fates(numbers);
  std::vector<bool> lost;
  std::vector<std::uint32_t> left;
  for (std::size_t i = 0; i < fates.size(); ++i) {
    lost.push_back(fates[i].lost);
    if (!fates[i].lost) left.push_back(helpers_[i]);
    if (!fates[i].lost) continue;
    lines_->lose(helpers_[i]);
    if (auto failed = make_up(work, ranges[i], fates[i])) return failed;
  }
  if (left.size() == helpers_.size()) return std::nullopt;
  helpers_ = std::move(left);
  choose_for(without_helpers(group_, lost));
  return std::nullopt;
}

// First the results that a rank has, then the sums of the rest: each rank still has its contribution to them.
std::optional<Blame> TheEngine::make_up(const Work& work, const ElementRange& range, const HelperFate& fate) {
  const std::uint64_t known = range.begin + fate.elements;
  const Seat seat = seat_of(star_of_ranks(options_.ranks, fate.holder), options_.rank);
  for (const bool sum : {false, true}) {
    Work part = work;
    part.helpers.clear();
    part.collective = sum ? Collective::kAllReduce : Collective::kAllGather;
    part.seat = &seat;
    part.ranges = {sum ? ElementRange{known, range.end} : ElementRange{range.begin, known}};
    part.number = ++number_;
    if (auto failed = run(part)) return failed;
  }
  return std::nullopt;
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
    if (options_.rank == 0 && !why) {
      for (const std::uint32_t helper : helpers_) lines_->order(helper, {.ends = true});
      lines_->flush(kPartFailed);
    }
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
  if (options.helpers > kMostHelpers) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} helpers; allowed: 0 to {}", options.helpers, kMostHelpers));
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
