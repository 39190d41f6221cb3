// A plan of an all-reduce: the buffer is cut into shards, and each shard has one rooted tree over the members. Sums
// flow up the tree, the result flows down it, or on around a ring. All plans are this, so that one engine, one cost
// model and one simulation serve them all.
//
// The order of the sum is fixed: a member adds the sums of its children and its own contribution by ascending member
// number. So a plan gives the same bits in each run, and all plans of stars give those of the sum from rank 0 to the
// last.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace clustar::paraexpress {

// Ranks from 0, behind them the helpers: members that add but contribute nothing and want no result.
using Member = std::uint32_t;
inline constexpr Member kNobody = ~Member{0};
inline constexpr std::uint32_t kMostMembers = 16384;

struct Shard {
  std::uint64_t weight = 0;  // its share of the buffer is weight / the sum of all weights
  Member root = kNobody;
  // By member; the root's is itself, that of a helper outside of this tree kNobody.
  std::vector<Member> parent{};
  // Of a chain: the result goes on from the root to the leaf, and the way of the sums once more, in place of back.
  bool onward = false;
};

struct Forest {
  std::uint32_t ranks = 0;
  std::uint32_t helpers = 0;
  std::vector<Shard> shards{};

  std::uint32_t members() const { return ranks + helpers; }
  bool is_rank(Member member) const { return member < ranks; }
};

// "" if every rank's contribution reaches each root exactly once and no helper idles in a tree; otherwise what is
// wrong.
std::string inconsistency(const Forest& forest);
inline bool is_consistent(const Forest& forest) { return inconsistency(forest).empty(); }

// One line per shard, with its members' parents: for logs of small forests and for tests.
std::string to_string(const Forest& forest);

struct ElementRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
};
// What each shard has of `count` elements: adjoining ranges from 0 to `count`, each within one element of its share.
// With fewer elements than shards some are empty.
std::vector<ElementRange> element_ranges(const Forest& forest, std::uint64_t count);

// What one member does in one shard.
struct Role {
  bool takes_part = false;
  Member parent = kNobody, giver = kNobody;  // of the result; kNobody at the root
  std::vector<Member> children{}, takers{};  // who send their sums to it, and who get the result from it
  // Children, and the member itself where it is a rank, in the order in which they are added.
  std::vector<Member> addends{};
};
Role role_of(const Forest& forest, std::size_t shard, Member member);

// From whom each member gets the result: the root's is itself, that of a helper outside of the tree kNobody.
std::vector<Member> givers_of(const Shard& shard);

// The members of a tree by their height, leaves (height 0) first, equals by number. `heights` gets each member's
// height, 0 for those outside.
std::vector<Member> leaves_first(const Shard& shard, std::vector<std::uint32_t>& heights);

}  // namespace clustar::paraexpress
