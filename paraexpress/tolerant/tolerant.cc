#include "paraexpress/tolerant/tolerant.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>

#include "paraexpress/tolerant/group.h"

namespace clustar::paraexpress::tolerant {
namespace {

constexpr std::uint32_t kMostTolerance = 100'000;
constexpr Duration kMostDeadline = std::chrono::hours(1);

}  // namespace

Result<void> check(const GroupOptions& options) {
  const auto refuse = [](std::string what) -> Result<void> {
    return fail(ErrorCode::kInvalidArgument, std::move(what));
  };
  const Tolerance& tolerance = options.tolerance;
  if (options.ranks < 1 || options.ranks > kMostRanks || options.rank >= options.ranks) {
    return refuse(
        fmt::format("rank {} of {}; allowed: 1 to {} ranks, numbered from 0", options.rank, options.ranks, kMostRanks));
  }
  if (options.buckets < 1 || options.buckets > kMostBuckets) {
    return refuse(fmt::format("{} buckets; allowed: 1 to {}", options.buckets, kMostBuckets));
  }
  if (tolerance.quorum > options.ranks) {
    return refuse(fmt::format("a quorum of {}; allowed: 1 to {}, the ranks there are, or 0 for all but one",
                              tolerance.quorum, options.ranks));
  }
  if (tolerance.deadline < Duration{} || tolerance.deadline > kMostDeadline) {
    return refuse(fmt::format("a deadline of {:.3g} s; allowed: 0 to 3600 s",
                              std::chrono::duration<double>(tolerance.deadline).count()));
  }
  if (tolerance.staleness > kMostStaleness) {
    return refuse(fmt::format("a staleness of {} rounds; allowed: 0 to {}", tolerance.staleness, kMostStaleness));
  }
  if (tolerance.tolerance_ppm > kMostTolerance) {
    return refuse(
        fmt::format("a tolerance of {} parts per million; allowed: 0 to {}", tolerance.tolerance_ppm, kMostTolerance));
  }
  return {};
}

namespace {

Terms terms_of(const GroupOptions& options) {
  const Tolerance& tolerance = options.tolerance;
  Terms terms;
  terms.self = options.rank;
  terms.ranks = options.ranks;
  terms.buckets = options.buckets;
  terms.quorum = tolerance.quorum != 0 ? tolerance.quorum : std::max(1U, options.ranks - 1);
  terms.deadline = tolerance.deadline;
  terms.staleness = tolerance.staleness;
  terms.scales = tolerance.scales;
  return terms;
}

struct Told {
  const char* what = "";
  std::uint64_t value = 0;
};

// Ranks that go by different terms would wait for each other, or lose what others count on.
Result<void> agree(const Terms& terms, std::uint32_t tolerance_ppm, const AllGather& all_gather) {
  const std::array<Told, 7> told{
      Told{"ranks", terms.ranks},         {"buckets", terms.buckets},
      {"quorum", terms.quorum},           {"deadline in ns", static_cast<std::uint64_t>(terms.deadline.count())},
      {"staleness", terms.staleness},     {"tolerance in ppm", tolerance_ppm},
      {"scaling", terms.scales ? 1U : 0U}};
  std::array<std::uint64_t, told.size()> mine{}, theirs{};
  std::ranges::transform(told, mine.begin(), &Told::value);
  const auto all = all_gather(std::as_bytes(std::span(mine)));
  if (!all) return tl::unexpected(all.error());
  if (all->size() != terms.ranks * sizeof mine) {
    return fail(ErrorCode::kInternal, "the ranks' terms came in a wrong number of bytes");
  }
  for (Member rank = 0; rank < terms.ranks; ++rank) {
    std::memcpy(theirs.data(), all->data() + rank * sizeof theirs, sizeof theirs);
    for (std::size_t i = 0; i < told.size(); ++i) {
      if (theirs[i] == mine[i]) continue;
      return fail(ErrorCode::kInvalidUsage,
                  fmt::format("{}: rank {} was told {}, rank {} {}; all must be told the same", told[i].what, rank,
                              theirs[i], terms.self, mine[i]));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Group>> Group::create(transport::Transport& transport, const AllGather& all_gather,
                                             const GroupOptions& options) {
  if (const auto ok = check(options); !ok) return tl::unexpected(ok.error());
  const Terms terms = terms_of(options);
  if (const auto ok = agree(terms, options.tolerance.tolerance_ppm, all_gather); !ok) return tl::unexpected(ok.error());
  auto group = std::make_unique<TheGroup>(options, terms);
  if (const auto ok = group->set_up(transport, all_gather); !ok) return tl::unexpected(ok.error());
  return group;
}

}  // namespace clustar::paraexpress::tolerant
