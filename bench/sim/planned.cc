#include "bench/sim/planned.h"

#include <algorithm>
#include <utility>

namespace clustar::bench::sim {
namespace {

namespace px = clustar::paraexpress;

constexpr std::uint32_t kNoLane = ~std::uint32_t{0};
// As the engine's: messages of a link at once, and partial sums of it that wait.
constexpr std::uint32_t kPosted = 4, kWindow = 8;

// Both ends count a link's messages alike; a connection carries two links.
std::int32_t tag_of(std::uint32_t number, bool up) {
  return static_cast<std::int32_t>(number % 1024 * 2 + (up ? 1 : 0));
}

}  // namespace

Planned::Planned(Testbed& bed, std::vector<std::uint32_t> host_of)
    : bed_(bed), host_of_(std::move(host_of)), lanes_(host_of_.size() * host_of_.size(), kNoLane) {
  bed.on_done([this](const Done& done) { on_done(done); });
}

std::uint32_t Planned::lane(std::uint32_t from, std::uint32_t to) {
  std::uint32_t& known = lanes_[from * host_of_.size() + to];
  if (known == kNoLane) {
    known = bed_.connect(host_of_[from], host_of_[to]);
    if (ends_.size() <= known) ends_.resize(known + 1);
    ends_[known] = {from, to};
  }
  return known;
}

std::optional<Duration> Planned::all_reduce(const px::Forest& forest, std::uint64_t bytes, std::uint64_t chunk,
                                            Duration limit) {
  const auto ranges = px::element_ranges(forest, bytes);
  ranks_.clear();
  for (std::uint32_t rank = 0; rank < host_of_.size(); ++rank) {
    ranks_.push_back({px::Program(px::seat_of(forest, rank), px::Collective::kAllReduce, ranges, chunk, kWindow)});
    ranks_.back().links.resize(ranks_.back().program.links());
  }
  const TimePoint begin = bed_.now();
  for (std::uint32_t rank = 0; rank < host_of_.size(); ++rank) go_on(rank);
  const bool in_time = bed_.finish(limit);
  const bool done = std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.program.done(); });
  return in_time && done ? std::optional(bed_.now() - begin) : std::nullopt;
}

// What a sum makes ready may be sent at once.
void Planned::go_on(std::uint32_t rank) {
  px::Program& program = ranks_[rank].program;
  for (bool moved = true; std::exchange(moved, false);) {
    for (std::size_t link = 0; link < program.links(); ++link) {
      while (program.under_way(link) < kPosted && post(rank, link)) moved = true;
    }
    while (program.next_sum()) {
      program.summed();
      moved = true;
    }
  }
}

bool Planned::post(std::uint32_t rank, std::size_t link) {
  px::Program& program = ranks_[rank].program;
  const auto message = program.next(link);
  if (!message) return false;
  const px::Program::Link& facts = program.link(link);
  const auto size = static_cast<std::uint32_t>(message->range.size());
  const std::int32_t tag = tag_of(program.posted_messages(link), facts.up);
  program.posted(link);
  ranks_[rank].links[link].ended.push_back(false);
  if (facts.sends) {
    bed_.send(lane(rank, facts.peer), size, {}, tag);
  } else {
    bed_.post(lane(facts.peer, rank), size, tag);
  }
  return true;
}

std::size_t Planned::link_of(std::uint32_t rank, std::uint32_t peer, bool sends, bool up) const {
  const px::Program& program = ranks_[rank].program;
  std::size_t link = 0;
  while (program.link(link).peer != peer || program.link(link).sends != sends || program.link(link).up != up) ++link;
  return link;
}

void Planned::end(std::uint32_t rank, std::size_t link, std::uint32_t number) {
  Link& one = ranks_[rank].links[link];
  one.ended[(number + 1024 - one.passed % 1024) % 1024] = true;
  while (!one.ended.empty() && one.ended.front()) {
    one.ended.pop_front();
    ++one.passed;
    ranks_[rank].program.ended(link);
  }
}

void Planned::on_done(const Done& done) {
  const auto [from, to] = ends_[done.lane];
  const bool up = done.tag % 2 == 1;
  const auto number = static_cast<std::uint32_t>(done.tag / 2);
  end(to, link_of(to, from, false, up), number);
  end(from, link_of(from, to, true, up), number);
  go_on(to);
  go_on(from);
}

}  // namespace clustar::bench::sim
