// Which ranks share an uplink, and how narrow it is, from what was measured between pairs. A guess is worse than
// nothing: where the times do not fall into clear groups, all are in one region.
//
// Ranks meet in tournaments: in each round every rank has at most one partner, and all pairs exchange bytes at the same
// time. Pairs within a region have their NICs' rate, pairs that cross share the uplinks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "paraexpress/core/region_map.h"

namespace clustar::paraexpress {

// Of one tournament, in which each pair meets once. Different seeds pair others at the same time.
class Tournament {
 public:
  Tournament(std::uint32_t ranks, std::uint64_t seed);
  std::uint32_t rounds() const { return rounds_; }
  // kNobody: it sits out.
  Member partner(std::uint32_t round, Member rank) const;

 private:
  std::uint32_t ranks_, rounds_;
  std::vector<std::uint32_t> seat_of_;
  std::vector<Member> at_seat_;
};

// By rank and rank, row by row. Both of a pair may differ; the longer counts.
using PairTimes = std::vector<double>;

struct Probed {
  PairTimes round_trip_s{};             // on a quiet network, the least of several
  std::vector<PairTimes> exchange_s{};  // of tournament number i, seed i: all pairs of a round at once
  std::uint64_t exchange_bytes = 0;     // each way
};

// The group of each rank, numbered by its first rank. Empty: not clearly two groups or more, of two ranks or more
// each.
std::vector<std::uint32_t> clear_groups(std::uint32_t ranks, const PairTimes& times);

struct FoundRegions {
  RegionMap map{};
  std::string how{};  // one line for people
};
FoundRegions find_regions(std::uint32_t ranks, const Probed& probed);

// As a file that parse_region_map() reads.
std::string to_text(const RegionMap& map, std::uint32_t ranks);

}  // namespace clustar::paraexpress
