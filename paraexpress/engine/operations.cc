#include "paraexpress/engine/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include "paraexpress/engine/probe.h"

namespace clustar::paraexpress {
namespace {

constexpr Duration kPart = std::chrono::seconds(3);
constexpr Duration kPartFailed = std::chrono::seconds(1);

bool overlap(const Work& a, const Work& b) {
  const std::byte* const a_end = a.data + a.count * element_bytes(a.type);
  const std::byte* const b_end = b.data + b.count * element_bytes(b.type);
  return a.data < b_end && b.data < a_end;
}

Group without_any_helper(const Group& group) { return without_helpers(group, std::vector<bool>(group.helpers, true)); }

}  // namespace

void Operations::close() {
  if (mesh_ == nullptr) return;
  if (runner_) runner_->release();
  mesh_->close();
}

Result<void> Operations::connect(transport::Transport& transport, const AllGather& all_gather) {
  const std::uint32_t ranks = options_.ranks, members = ranks + options_.helpers;
  const bool probes = options_.regions == kProbeRegions;
  auto regions = options_.regions.empty() || probes ? Result<RegionMap>(one_region(members))
                                                    : parse_region_map(options_.regions, ranks, options_.helpers);
  if (!regions) return fail(ErrorCode::kInvalidArgument, "region map, line " + regions.error().message);
  const Group group = make_group(ranks, options_.helpers, std::move(*regions));
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
  if (ranks == 1) {
    choose_for(group);
    return {};
  }
  auto mesh = Mesh::connect(
      transport, all_gather,
      {options_.rank, ranks, options_.helpers, options_.device, setup(), options_.channel, options_.epoch});
  if (!mesh) return tl::unexpected(mesh.error());
  mesh_ = std::move(*mesh);
  return set_up_lines(group);
}

Result<void> Operations::set_up_lines(Group group) {
  for (std::uint32_t helper = 0; helper < options_.helpers; ++helper) helpers_.push_back(helper);
  farewells_ = std::make_unique<Farewells>(*mesh_, options_.rank, options_.ranks);
  if (const auto ok = farewells_->open(); !ok) return ok;
  lines_ = std::make_unique<HelperLines>(*mesh_, options_.ranks, options_.helpers);
  if (const auto ok = lines_->open(); !ok) return ok;
  for (const std::uint32_t helper : helpers_) {
    if (!mesh_->has(options_.ranks + helper)) lines_->lose(helper);
  }
  const RunnerOptions runner{options_.rank, options_.ranks, group.members(), setup()};
  runner_.emplace(*mesh_, *farewells_, lines_.get(), runner, abort_);
  network_.most_chunk_bytes = options_.chunk_bytes;
  network_.least_chunk_bytes = std::min(network_.least_chunk_bytes, network_.most_chunk_bytes);
  choose_for(group);
  const auto left = agree_on_helpers();
  if (!left) return tl::unexpected(part(left.error())->error);
  group = *left;
  const auto measured = measure();
  if (!measured) return tl::unexpected(part(measured.error())->error);
  if (options_.regions == kProbeRegions) {
    auto found = find_map();
    if (!found) return tl::unexpected(part(found.error())->error);
    group = make_group(options_.ranks, 0, std::move(*found));
  }
  network_ = fit(without_any_helper(group), *measured, network_);
  choose_for(group);
  runner_->set_waits({options_.stall});
  return {};
}

// What one rank could not reach is none for all.
tl::expected<Group, Blame> Operations::agree_on_helpers() {
  if (helpers_.empty()) return group_;
  std::vector<std::uint64_t> numbers;
  for (const std::uint32_t helper : helpers_) numbers.push_back(lines_->lost(helper) ? 1 : 0);
  if (auto failed = agree(std::span(numbers), DataType::kUint64)) return tl::unexpected(*failed);
  std::vector<bool> lost;
  for (const std::uint32_t helper : helpers_) {
    lost.push_back(numbers[helper] != 0);
    if (lost.back()) lines_->lose(helper);
  }
  std::erase_if(helpers_, [&](std::uint32_t helper) { return lost[helper]; });
  choose_for(without_helpers(group_, lost));
  return group_;
}

tl::expected<RegionMap, Blame> Operations::find_map() {
  const auto agreed = [this](std::span<double> numbers) { return agree(numbers, DataType::kFloat64); };
  const auto probed = probe(*mesh_, *farewells_, options_.rank, options_.ranks, setup(), agreed);
  if (!probed) return tl::unexpected(probed.error());
  FoundRegions found = find_regions(options_.ranks, *probed);
  regions_found_ = std::move(found.how);
  return std::move(found.map);
}

void Operations::choose_for(const Group& group, bool keeps) {
  EngineOptions options = options_;
  // What the user asked for may have been of helpers that are gone: without them it is this plan.
  if (options.plan && !makes_sense(*options.plan, group)) options.plan = Plan::kDirect;
  auto made = std::make_shared<const PlanChoice>(group, options, network_, keeps ? in_use_ : PlanChoice::InUse{});
  const Group plain = without_any_helper(group);
  if (options.plan && !makes_sense(*options.plan, plain)) options.plan = Plan::kDirect;
  plain_ = group.helpers == 0
               ? made
               : std::make_shared<const PlanChoice>(plain, options, network_, keeps ? in_use_ : PlanChoice::InUse{});
  const std::lock_guard lock(mutex_);
  group_ = group;
  choice_ = std::move(made);
}

std::shared_ptr<const PlanChoice> Operations::choice() const {
  const std::lock_guard lock(mutex_);
  return choice_;
}

std::uint32_t Operations::helpers() const {
  const std::lock_guard lock(mutex_);
  return group_.helpers;
}

std::string Operations::regions() const {
  const std::lock_guard lock(mutex_);
  return to_text(group_.regions, options_.ranks);
}

Result<std::byte*> Operations::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) {
    scratch_mr_.reset();
    scratch_.resize(bytes);
    auto registered = mesh_->reg_mr(scratch_.data(), scratch_.size());
    if (!registered) return tl::unexpected(registered.error());
    scratch_mr_ = std::move(*registered);
  }
  return scratch_.data();
}

template <typename T>
std::optional<Blame> Operations::agree(std::span<T> elements, DataType type) {
  const std::size_t bytes = elements.size_bytes();
  const auto memory = scratch(bytes);
  if (!memory) return blame(options_.rank, memory.error());
  std::memcpy(*memory, elements.data(), bytes);
  Work work;
  work.data = *memory;
  work.count = elements.size();
  work.type = type;
  work.reduction = Reduction::kMax;
  work.memory = scratch_mr_.get();
  go_by(*plain_, work, plain_->choose(bytes));
  if (auto failed = runner_->run(work)) return failed;
  std::memcpy(elements.data(), *memory, bytes);
  return std::nullopt;
}

// The slowest rank's view of the least time holds for all.
tl::expected<Measured, Blame> Operations::measure() {
  Measured measured;
  constexpr int kSmallRounds = 8, kLargeRounds = 3;
  const auto memory = scratch(measured.large_bytes);
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
      const auto begin = std::chrono::steady_clock::now();
      if (const auto failed = runner_->run(work)) return tl::unexpected(*failed);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  };
  std::vector<double> slowest;
  for (const auto& [plan, bytes, rounds] : {std::tuple{Plan::kDirect, measured.small_bytes, kSmallRounds},
                                            {Plan::kRing, measured.small_bytes, kSmallRounds},
                                            {Plan::kDirect, measured.large_bytes, kLargeRounds},
                                            {Plan::kServer, measured.small_bytes, kSmallRounds}}) {
    const auto seconds = least(plan, bytes, rounds);
    if (!seconds) return tl::unexpected(seconds.error());
    slowest.push_back(*seconds);
  }
  if (const auto failed = agree(std::span(slowest), DataType::kFloat64)) return tl::unexpected(*failed);
  measured.direct_small_s = slowest[0];
  measured.ring_small_s = slowest[1];
  measured.direct_large_s = slowest[2];
  measured.server_small_s = slowest[3];
  measured.middle_bytes = middle_bytes(measured);
  const auto middle = least(Plan::kDirect, measured.middle_bytes, kSmallRounds);
  if (!middle) return tl::unexpected(middle.error());
  measured.direct_middle_s = *middle;
  if (const auto failed = agree(std::span(&measured.direct_middle_s, 1), DataType::kFloat64)) {
    return tl::unexpected(*failed);
  }
  return measured;
}

std::optional<Blame> Operations::review() {
  std::vector<double> means(options_.ranks, 0);
  means[options_.rank] = lateness_.take_mean();
  if (auto failed = agree(std::span(means), DataType::kFloat64)) return failed;
  const std::vector<double> lags = lags_of(means);
  if (!differs(network_.lag_s, lags)) return std::nullopt;
  network_.lag_s = lags;
  choose_for(group_, true);
  return std::nullopt;
}

void Operations::go_by(const PlanChoice& by, Work& work, const PlanChoice::Choice& choice) {
  work.seat = &by.seat(choice.plan);
  work.ranges = element_ranges(by.forest(choice.plan), work.count);
  work.chunk = std::max<std::uint64_t>(choice.chunk_bytes / element_bytes(work.type), 1);
  work.number = ++number_;
}

bool Operations::is_helped(const Asked& asked) const {
  if (helpers_.empty() || asked.work.collective != Collective::kAllReduce) return false;
  const Forest& forest = choice_->forest(choice_->choose(asked.bytes).plan);
  return std::ranges::any_of(forest.shards, [&](const Shard& shard) { return !forest.is_rank(shard.root); });
}

bool Operations::may_begin(const Asked& asked) const {
  if (running_.empty()) return true;
  if (running_.size() == Runner::kAtOnce || (asked_ + 1) % kReview == 0 || is_helped(asked)) return false;
  return std::ranges::none_of(running_, [&](const Running* one) { return overlap(one->work(), asked.work); });
}

tl::expected<std::unique_ptr<Running>, Blame> Operations::begin(Asked asked) {
  Work& work = asked.work;
  try {
    if (++asked_ % kReview == 0) {
      if (const auto failed = review()) return tl::unexpected(*failed);
    }
    const std::shared_ptr<const PlanChoice> by = is_helped(asked) ? choice() : plain_;
    work.by = by;
    if (by != plain_ || is_helped(asked)) {
      const PlanChoice::Choice chosen = by->choose(asked.bytes);
      note(work.collective, asked.bytes, chosen.plan);
      go_by(*by, work, chosen);
      if (const auto failed = run_with_helpers(std::move(work), *by, chosen.plan)) return tl::unexpected(*failed);
      return nullptr;
    }
    if (work.collective == Collective::kBroadcast) {
      const PlanChoice::Broadcast chosen = by->broadcast(asked.bytes, work.root);
      work.tree = std::make_shared<const Seat>(seat_of(chosen.forest, options_.rank));
      work.seat = work.tree.get();
      work.ranges = element_ranges(chosen.forest, work.count);
      work.chunk = chosen.chunk_bytes;
      work.number = ++number_;
    } else if (work.collective == Collective::kPull) {
      go_by(*by, work, *asked.pushed);
    } else {
      const PlanChoice::Choice chosen = by->choose(asked.bytes, work.collective);
      if (asked.pushed) *asked.pushed = chosen;
      note(work.collective, asked.bytes, chosen.plan);
      go_by(*by, work, chosen);
    }
    auto one = runner_->begin(std::move(work));
    if (one) running_.push_back(one->get());
    return one;
  } catch (const std::bad_alloc&) {
    return tl::unexpected(blame(options_.rank, {ErrorCode::kSystem, "no memory is left for the partial sums"}));
  }
}

void Operations::note(Collective collective, std::uint64_t bytes, Plan plan) {
  constexpr std::size_t kMostSizes = 4096;
  if (in_use_.size() == kMostSizes) in_use_.clear();
  in_use_[{collective, bytes}] = plan;
}

std::optional<Blame> Operations::advance(std::span<const std::unique_ptr<Running>> running) {
  bool moved = false;
  for (std::size_t i = running.size(); i-- > 0;) {
    if (auto failed = runner_->advance(*running[i], moved)) return failed;
  }
  if (!moved) return runner_->rest(*running.front());
  runner_->moved();
  return std::nullopt;
}

void Operations::end(const Running& one, double seconds) {
  std::erase(running_, &one);
  runner_->finish(one);
  count(seconds);
}

void Operations::order(const Work& work, Plan plan) {
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

std::optional<Blame> Operations::run_with_helpers(Work work, const PlanChoice& by, Plan plan) {
  work.helpers = helpers_;
  if (options_.rank == 0) order(work, plan);
  if (auto failed = runner_->run(work)) return failed;
  const Forest& forest = by.forest(plan);
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
  if (auto failed = agree(std::span(numbers), DataType::kUint64)) return failed;
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
std::optional<Blame> Operations::make_up(const Work& work, const ElementRange& range, const HelperFate& fate) {
  const std::uint64_t known = range.begin + fate.elements;
  const Seat seat = seat_of(star_of_ranks(options_.ranks, fate.holder), options_.rank);
  for (const bool sum : {false, true}) {
    Work part = work;
    part.helpers.clear();
    part.collective = sum ? Collective::kAllReduce : Collective::kAllGather;
    part.seat = &seat;
    part.ranges = {sum ? ElementRange{known, range.end} : ElementRange{range.begin, known}};
    part.number = ++number_;
    if (auto failed = runner_->run(part)) return failed;
  }
  return std::nullopt;
}

// Who stalls may hear from others who is to blame.
std::optional<Blame> Operations::part(const std::optional<Blame>& why) {
  if (options_.rank == 0 && !why) {
    for (const std::uint32_t helper : helpers_) lines_->order(helper, {.ends = true});
    lines_->flush(kPartFailed);
  }
  return farewells_->last_word(why, why ? kPartFailed : kPart);
}

}  // namespace clustar::paraexpress
