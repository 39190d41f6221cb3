#include "paraexpress/core/forest.h"

#include <fmt/format.h>

#include <algorithm>

namespace clustar::paraexpress {
namespace {

std::vector<std::uint32_t> child_counts(const Shard& shard) {
  std::vector<std::uint32_t> counts(shard.parent.size(), 0);
  for (Member member = 0; member < shard.parent.size(); ++member) {
    const Member parent = shard.parent[member];
    if (parent != kNobody && parent != member) ++counts[parent];
  }
  return counts;
}

std::string wrong_parents(const Forest& forest, const Shard& shard) {
  const Member members = forest.members();
  if (shard.parent.size() != members) {
    return fmt::format("has {} parents; allowed: one for each of {} members", shard.parent.size(), members);
  }
  if (shard.root >= members) return fmt::format("has the root {}; allowed: 0 to {}", shard.root, members - 1);
  if (shard.parent[shard.root] != shard.root) return fmt::format("has the root {}, which has a parent", shard.root);
  for (Member member = 0; member < members; ++member) {
    const Member parent = shard.parent[member];
    if (parent == kNobody && forest.is_rank(member)) return fmt::format("lacks rank {}", member);
    if (parent == kNobody) continue;
    if (parent >= members) return fmt::format("sends {} to {}, who is no member", member, parent);
    if (parent == member && member != shard.root) return fmt::format("has a second root, {}", member);
    if (shard.parent[parent] == kNobody) return fmt::format("sends {} to {}, who is not in this tree", member, parent);
  }
  return {};
}

std::string wrong_tree(const Forest& forest, const Shard& shard) {
  if (std::string wrong = wrong_parents(forest, shard); !wrong.empty()) return wrong;
  const auto counts = child_counts(shard);
  std::size_t in_tree = 0;
  for (Member member = 0; member < forest.members(); ++member) {
    if (shard.parent[member] == kNobody) continue;
    ++in_tree;
    if (!forest.is_rank(member) && counts[member] == 0) return fmt::format("has helper {}, which adds nothing", member);
  }
  std::vector<std::uint32_t> heights;
  if (leaves_first(shard, heights).size() != in_tree) return "has a circle";
  const bool chain = std::ranges::all_of(counts, [](std::uint32_t count) { return count <= 1; });
  if (shard.onward && !chain) return "goes onward and is no chain";
  return {};
}

}  // namespace

std::string inconsistency(const Forest& forest) {
  if (forest.ranks == 0) return "no rank";
  if (forest.ranks > kMostMembers || forest.helpers > kMostMembers)
    return fmt::format("more than {} ranks or helpers", kMostMembers);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < forest.shards.size(); ++i) {
    const Shard& shard = forest.shards[i];
    if (shard.weight > std::uint64_t{1} << 32) return fmt::format("shard {} weighs more than 2^32", i);
    sum += shard.weight;
    if (std::string wrong = wrong_tree(forest, shard); !wrong.empty()) return fmt::format("shard {} {}", i, wrong);
  }
  return sum == 0 ? "no shard has a weight" : std::string();
}

std::string to_string(const Forest& forest) {
  std::string text =
      fmt::format("{} ranks, {} helpers, {} shards\n", forest.ranks, forest.helpers, forest.shards.size());
  for (std::size_t i = 0; i < forest.shards.size(); ++i) {
    const Shard& shard = forest.shards[i];
    text += fmt::format("shard {} weight {} root {}:", i, shard.weight, shard.root);
    for (Member member = 0; member < shard.parent.size(); ++member) {
      if (member == shard.root || shard.parent[member] == kNobody) continue;
      text += fmt::format(" {}>{}", member, shard.parent[member]);
    }
    text += '\n';
  }
  return text;
}

std::vector<ElementRange> element_ranges(const Forest& forest, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (const Shard& shard : forest.shards) sum += shard.weight;
  std::vector<ElementRange> ranges;
  ranges.reserve(forest.shards.size());
  std::uint64_t before = 0, begin = 0;
  for (const Shard& shard : forest.shards) {
    before += shard.weight;
    const auto end = sum == 0 ? 0 : static_cast<std::uint64_t>(static_cast<unsigned __int128>(count) * before / sum);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

Role role_of(const Forest& forest, std::size_t shard, Member member) {
  const Shard& tree = forest.shards[shard];
  Role role;
  if (tree.parent[member] == kNobody) return role;
  role.takes_part = true;
  const std::vector<Member> givers = givers_of(tree);
  if (member != tree.root) role.parent = tree.parent[member], role.giver = givers[member];
  for (Member other = 0; other < forest.members(); ++other) {
    const bool child = other != member && tree.parent[other] == member;
    if (child) role.children.push_back(other);
    if (child || (other == member && forest.is_rank(member))) role.addends.push_back(other);
    if (other != member && givers[other] == member) role.takers.push_back(other);
  }
  return role;
}

std::vector<Member> givers_of(const Shard& shard) {
  std::vector<Member> givers = shard.parent;
  if (!shard.onward) return givers;
  // The leaf's is the root, all others' their child.
  for (Member& giver : givers) giver = giver == kNobody ? kNobody : shard.root;
  for (Member member = 0; member < shard.parent.size(); ++member) {
    const Member parent = shard.parent[member];
    if (parent != kNobody && parent != shard.root) givers[parent] = member;
  }
  return givers;
}

std::vector<Member> leaves_first(const Shard& shard, std::vector<std::uint32_t>& heights) {
  auto waiting = child_counts(shard);
  heights.assign(shard.parent.size(), 0);
  std::vector<Member> order;
  order.reserve(shard.parent.size());
  for (Member member = 0; member < shard.parent.size(); ++member) {
    if (shard.parent[member] != kNobody && waiting[member] == 0) order.push_back(member);
  }
  // A member is ready with its last child, which is one of the highest: so they come by height.
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Member member = order[i];
    const Member parent = shard.parent[member];
    if (parent == member) continue;
    heights[parent] = std::max(heights[parent], heights[member] + 1);
    if (--waiting[parent] == 0) order.push_back(parent);
  }
  // Equals by number, so that all members see the same order: each height has its places, filled by number.
  std::vector<std::uint32_t> place(heights.empty() ? 1 : *std::max_element(heights.begin(), heights.end()) + 2, 0);
  for (const Member member : order) ++place[heights[member] + 1];
  for (std::size_t height = 1; height < place.size(); ++height) place[height] += place[height - 1];
  std::vector<bool> in_order(shard.parent.size(), false);
  for (const Member member : order) in_order[member] = true;
  for (Member member = 0; member < shard.parent.size(); ++member) {
    if (in_order[member]) order[place[heights[member]]++] = member;
  }
  return order;
}

}  // namespace clustar::paraexpress
