#include "paraexpress/core/program.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace clustar::paraexpress {

Seat seat_of(const Forest& forest, Member member) {
  Seat seat;
  seat.member = member;
  seat.shards.resize(forest.shards.size());
  std::vector<std::uint32_t> heights;
  for (std::size_t i = 0; i < forest.shards.size(); ++i) {
    Seat::InShard& mine = seat.shards[i];
    mine.role = role_of(forest, i, member);
    if (!mine.role.takes_part) continue;
    (void)leaves_first(forest.shards[i], heights);
    mine.height = heights[member];
    if (mine.role.parent == kNobody) continue;
    mine.parent_height = heights[mine.role.parent];
    if (forest.shards[i].onward) {
      mine.depth = mine.height + 1;
      continue;
    }
    for (Member at = member; at != forest.shards[i].root; at = forest.shards[i].parent[at]) ++mine.depth;
  }
  return seat;
}

Program::Program(const Seat& seat, Collective collective, const std::vector<ElementRange>& ranges, std::uint64_t chunk,
                 std::uint32_t window)
    : window_(window), member_(seat.member) {
  assert(chunk > 0 && window > 0 && ranges.size() == seat.shards.size());
  std::uint64_t longest = 0;
  for (const ElementRange& range : ranges) longest = std::max(longest, range.size());
  const std::uint64_t chunks = (longest + chunk - 1) / chunk;
  const bool adds = goes_up(collective), gives = goes_down(collective);
  addends_.resize(seat.shards.size());
  for (std::size_t i = 0; i < seat.shards.size(); ++i) addends_[i] = seat.shards[i].role.addends;

  struct Entry {
    std::uint64_t chunk;
    std::uint32_t rank;
    std::uint32_t cell;
  };
  std::vector<std::vector<Entry>> order;
  const auto enter = [&](Member peer, bool sends, bool up, std::uint64_t of, std::uint32_t rank, std::uint32_t cell) {
    const std::size_t link = link_to(peer, sends, up);
    if (link == order.size()) order.emplace_back();
    order[link].push_back({of, rank, cell});
    links_[link].facts.elements += cells_[cell].range.size();
    ++left_;
  };
  for (std::uint64_t of = 0; of < chunks; ++of) {
    for (std::uint32_t i = 0; i < seat.shards.size(); ++i) {
      const Seat::InShard& mine = seat.shards[i];
      const std::uint64_t begin = ranges[i].begin + of * chunk;
      if (!mine.role.takes_part || begin >= ranges[i].end) continue;
      const auto cell = static_cast<std::uint32_t>(cells_.size());
      const bool root = mine.role.parent == kNobody;
      Cell made;
      made.range = {begin, std::min(begin + chunk, ranges[i].end)};
      made.shard = i;
      made.missing = adds ? static_cast<std::uint32_t>(mine.role.children.size()) : 0;
      made.summed = made.missing == 0;
      made.passed_up = root || !adds;
      made.result = root && made.summed;
      cells_.push_back(made);
      first_place_.push_back(static_cast<std::uint32_t>(places_.size()));
      places_.resize(places_.size() + addends_[i].size());
      if (!made.summed) ++left_;
      for (std::size_t at = 0; adds && at < mine.role.children.size(); ++at) {
        enter(mine.role.children[at], false, true, of, mine.height, cell);
      }
      for (std::size_t at = 0; gives && at < mine.role.takers.size(); ++at) {
        enter(mine.role.takers[at], true, false, of, mine.depth + 1, cell);
      }
      if (root) continue;
      if (adds) enter(mine.role.parent, true, true, of, mine.parent_height, cell);
      if (gives) enter(mine.role.giver, false, false, of, mine.depth, cell);
    }
  }
  for (std::size_t link = 0; link < order.size(); ++link) {
    std::sort(order[link].begin(), order[link].end(), [&](const Entry& a, const Entry& b) {
      return std::tie(a.chunk, a.rank, a.cell) < std::tie(b.chunk, b.rank, b.cell);
    });
    for (const Entry& entry : order[link]) links_[link].cells.push_back(entry.cell);
  }
}

std::size_t Program::link_to(Member peer, bool sends, bool up) {
  const auto there = std::find_if(links_.begin(), links_.end(), [&](const LinkState& link) {
    return link.facts.peer == peer && link.facts.sends == sends && link.facts.up == up;
  });
  if (there != links_.end()) return static_cast<std::size_t>(there - links_.begin());
  links_.emplace_back();
  links_.back().facts = {peer, sends, up, 0};
  return links_.size() - 1;
}

std::optional<Program::Message> Program::next(std::size_t index) const {
  const LinkState& link = links_[index];
  if (link.posted == link.cells.size()) return std::nullopt;
  const Cell& cell = cells_[link.cells[link.posted]];
  Message message{cell.range, 0};
  if (link.facts.sends) {
    if (link.facts.up ? !cell.summed : !cell.result) return std::nullopt;
    return message;
  }
  if (!link.facts.up) {
    // The result lands where the sum lies that is still to go up.
    if (!cell.passed_up) return std::nullopt;
    return message;
  }
  message.place = link.posted % window_;
  const bool free = link.posted < window_ || cells_[link.cells[link.posted - window_]].summed;
  return free ? std::optional(message) : std::nullopt;
}

void Program::posted(std::size_t index) {
  LinkState& link = links_[index];
  if (!link.facts.sends && link.facts.up) {
    const std::uint32_t cell = link.cells[link.posted];
    const std::vector<Member>& addends = addends_[cells_[cell].shard];
    const auto at = std::find(addends.begin(), addends.end(), link.facts.peer) - addends.begin();
    places_[first_place_[cell] + static_cast<std::size_t>(at)] = link.posted % window_;
  }
  ++link.posted;
}

void Program::ended(std::size_t index) {
  LinkState& link = links_[index];
  assert(link.ended < link.posted);
  const std::uint32_t at = link.cells[link.ended++];
  Cell& cell = cells_[at];
  --left_;
  if (link.facts.sends) {
    if (link.facts.up) cell.passed_up = true;
    return;
  }
  if (!link.facts.up) {
    cell.result = true;
    return;
  }
  if (--cell.missing == 0) ready_.push_back(at);
}

void Program::abandon(Member peer) {
  for (LinkState& link : links_) {
    if (link.facts.peer != peer) continue;
    const auto all = static_cast<std::uint32_t>(link.cells.size());
    left_ -= all - link.ended;
    link.posted = link.ended = all;
  }
}

std::optional<Program::Sum> Program::next_sum() const {
  if (ready_.empty()) return std::nullopt;
  const std::uint32_t at = ready_.front();
  const Cell& cell = cells_[at];
  Sum sum;
  sum.range = cell.range;
  const std::vector<Member>& addends = addends_[cell.shard];
  for (std::size_t i = 0; i < addends.size(); ++i) {
    if (addends[i] == member_) {
      sum.inputs.push_back({Sum::kOwn, 0});
      continue;
    }
    for (std::size_t link = 0; link < links_.size(); ++link) {
      const Link& facts = links_[link].facts;
      if (facts.peer != addends[i] || facts.sends || !facts.up) continue;
      sum.inputs.push_back({link, places_[first_place_[at] + i]});
    }
  }
  return sum;
}

void Program::summed() {
  Cell& cell = cells_[ready_.front()];
  ready_.erase(ready_.begin());
  cell.summed = true;
  if (cell.passed_up) cell.result = true;  // the root
  --left_;
}

}  // namespace clustar::paraexpress
