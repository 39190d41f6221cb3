#include "paraexpress/core/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

// Between groups it takes so many times as long as within one, or it is noise.
constexpr double kLeastRatio = 1.3;
// And nearly all pairs between groups take so many times as long as nearly all within one.
constexpr double kLeastGap = 1.15;
// Few pairs look like groups by chance.
constexpr std::uint32_t kFewRanks = 5;
constexpr double kLeastGapOfFew = 1.5;
// Pairs that may be measured on the wrong side.
constexpr double kMostStrays = 0.05;
// Two ranks are of a group where they see so many of the others alike.
constexpr double kAlike = 0.75;
constexpr std::size_t kMostCuts = 16;
// A narrower uplink than this does not show behind the noise.
constexpr double kLeastOversubscription = 1.15;

double quantile(std::vector<double>& values, double at) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(at * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

class Times {
 public:
  Times(std::uint32_t ranks, const PairTimes& times) : ranks_(ranks), times_(times) {}
  double of(Member a, Member b) const {
    return std::max(times_[std::size_t{a} * ranks_ + b], times_[std::size_t{b} * ranks_ + a]);
  }
  std::vector<double> sorted() const {
    std::vector<double> all;
    for (Member a = 0; a < ranks_; ++a) {
      for (Member b = a + 1; b < ranks_; ++b) all.push_back(of(a, b));
    }
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::uint32_t ranks_;
  const PairTimes& times_;
};

// Ranks that see the others alike, where `near` are those up to `cut`.
std::vector<std::uint32_t> alike(std::uint32_t ranks, const Times& times, double cut) {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<char> near(std::size_t{ranks} * ranks);
  for (Member a = 0; a < ranks; ++a) {
    for (Member b = 0; b < ranks; ++b) near[std::size_t{a} * ranks + b] = a == b || times.of(a, b) <= cut;
  }
  std::vector<std::uint32_t> group(ranks, kNone);
  std::uint32_t groups = 0;
  for (Member first = 0; first < ranks; ++first) {
    if (group[first] != kNone) continue;
    group[first] = groups;
    const char* const row = &near[std::size_t{first} * ranks];
    for (Member other = first + 1; other < ranks; ++other) {
      if (group[other] != kNone) continue;
      const char* const its = &near[std::size_t{other} * ranks];
      // Of the near ones only: with many regions two strangers agree about most of those that are far from both.
      std::uint32_t both = 0, either = 0;
      for (Member third = 0; third < ranks; ++third) {
        both += row[third] && its[third];
        either += row[third] || its[third];
      }
      if (both >= kAlike * either) group[other] = groups;
    }
    ++groups;
  }
  return group;
}

// How many times as long it takes between the two groups that are nearest to each other as within the widest one; 0:
// these are no clear groups. All is looked at group by group: among many pairs, those of one group do not count.
double ratio_of(std::uint32_t ranks, const Times& times, const std::vector<std::uint32_t>& group, double cut) {
  const std::size_t groups = *std::max_element(group.begin(), group.end()) + std::size_t{1};
  if (groups < 2 || groups > ranks / 2) return 0;
  std::vector<std::vector<double>> between(groups * groups);
  std::vector<std::uint32_t> strays_of(ranks * groups, 0), members(groups, 0);
  std::size_t strays = 0;
  for (Member a = 0; a < ranks; ++a) {
    ++members[group[a]];
    for (Member b = a + 1; b < ranks; ++b) {
      const double time = times.of(a, b);
      between[std::min(group[a], group[b]) * groups + std::max(group[a], group[b])].push_back(time);
      if ((group[a] == group[b]) == (time <= cut)) continue;
      ++strays, ++strays_of[a * groups + group[b]], ++strays_of[b * groups + group[a]];
    }
  }
  if (static_cast<double>(strays) > kMostStrays * ranks * (ranks - 1) / 2) return 0;
  // A rank alone is more often noise than a region.
  if (*std::min_element(members.begin(), members.end()) < 2) return 0;
  for (Member rank = 0; rank < ranks; ++rank) {
    for (std::size_t other = 0; other < groups; ++other) {
      if (strays_of[rank * groups + other] > members[other] / 4) return 0;
    }
  }
  double inner = 0, outer = 0;
  std::vector<double> all_within, all_between;
  for (std::size_t a = 0; a < groups; ++a) {
    for (std::size_t b = a; b < groups; ++b) {
      const auto& block = between[a * groups + b];
      auto& side = a == b ? all_within : all_between;
      side.insert(side.end(), block.begin(), block.end());
    }
  }
  const double least_gap = ranks <= kFewRanks ? kLeastGapOfFew : kLeastGap;
  if (quantile(all_between, 0.1) < least_gap * quantile(all_within, 0.9)) return 0;
  for (std::size_t a = 0; a < groups; ++a) {
    if (auto& own = between[a * groups + a]; !own.empty()) inner = std::max(inner, quantile(own, 0.5));
    for (std::size_t b = a + 1; b < groups; ++b) {
      const double median = quantile(between[a * groups + b], 0.5);
      outer = outer > 0 ? std::min(outer, median) : median;
    }
  }
  return inner > 0 ? outer / inner : 0;
}

double least_of_quarter(std::vector<double> values) { return quantile(values, 0.25); }

PairTimes median_of(const std::vector<PairTimes>& all, std::uint32_t ranks) {
  PairTimes out(std::size_t{ranks} * ranks, 0);
  std::vector<double> one;
  for (Member a = 0; a < ranks; ++a) {
    for (Member b = 0; b < ranks; ++b) {
      one.clear();
      for (const PairTimes& times : all) one.push_back(Times(ranks, times).of(a, b));
      out[std::size_t{a} * ranks + b] = quantile(one, 0.5);
    }
  }
  return out;
}

// Bytes per second through each region's uplink when several pairs cross it: of each round what went through until the
// last was done, of all rounds the most, for some leave it idle at their end.
std::vector<double> uplinks(std::uint32_t ranks, const RegionMap& map, const Probed& probed) {
  std::vector<double> most(map.regions.size(), 0);
  for (std::size_t i = 0; i < probed.exchange_s.size(); ++i) {
    const Tournament tournament(ranks, i);
    const Times times(ranks, probed.exchange_s[i]);
    for (std::uint32_t round = 0; round < tournament.rounds(); ++round) {
      std::vector<double> last(most.size(), 0);
      std::vector<std::uint32_t> crossing(most.size(), 0);
      for (Member rank = 0; rank < ranks; ++rank) {
        const Member other = tournament.partner(round, rank);
        if (other == kNobody || map.region_of[rank] == map.region_of[other]) continue;
        ++crossing[map.region_of[rank]];
        last[map.region_of[rank]] = std::max(last[map.region_of[rank]], times.of(rank, other));
      }
      for (std::size_t region = 0; region < most.size(); ++region) {
        if (last[region] <= 0) continue;
        most[region] =
            std::max(most[region], static_cast<double>(probed.exchange_bytes) * crossing[region] / last[region]);
      }
    }
  }
  return most;
}

RegionMap map_of_groups(const std::vector<std::uint32_t>& group) {
  RegionMap map;
  map.region_of = group;
  for (const std::uint32_t region : group) {
    if (region == map.regions.size()) map.regions.push_back({fmt::format("region{}", region), 0, 1});
    ++map.regions[region].hosts;
  }
  return map;
}

}  // namespace

// The circle method: the last seat stays, the others turn by one each round.
Tournament::Tournament(std::uint32_t ranks, std::uint64_t seed)
    : ranks_(ranks), rounds_(ranks < 2 ? 0 : ranks + ranks % 2 - 1), seat_of_(ranks), at_seat_(ranks) {
  std::iota(at_seat_.begin(), at_seat_.end(), Member{0});
  Rng rng(seed);
  for (std::uint32_t i = ranks; i > 1; --i) std::swap(at_seat_[i - 1], at_seat_[rng.below(i)]);
  for (std::uint32_t seat = 0; seat < ranks; ++seat) seat_of_[at_seat_[seat]] = seat;
}

Member Tournament::partner(std::uint32_t round, Member rank) const {
  const std::uint32_t seat = seat_of_[rank], last = rounds_;
  std::uint32_t other = 0;
  if (seat == last) {
    // Whose partner would be itself: 2 s = round, in the ring of an odd number of seats.
    other = round % 2 == 0 ? round / 2 : (round + rounds_) / 2;
  } else {
    other = (round + rounds_ - seat) % rounds_;
    if (other == seat) other = last;
  }
  return other < ranks_ ? at_seat_[other] : kNobody;
}

std::vector<std::uint32_t> clear_groups(std::uint32_t ranks, const PairTimes& pairs) {
  if (ranks < 3 || pairs.size() != std::size_t{ranks} * ranks) return {};
  const Times times(ranks, pairs);
  const std::vector<double> sorted = times.sorted();
  if (!(sorted.front() > 0)) return {};
  std::vector<std::pair<double, std::size_t>> cuts;  // how wide the gap is behind which value
  for (std::size_t i = 0; i + 1 < sorted.size(); ++i) cuts.emplace_back(sorted[i + 1] / sorted[i], i);
  std::sort(cuts.begin(), cuts.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  if (cuts.size() > kMostCuts) cuts.resize(kMostCuts);
  std::vector<std::uint32_t> best;
  double best_ratio = kLeastRatio;
  for (const auto& [gap, at] : cuts) {
    auto group = alike(ranks, times, sorted[at]);
    const double ratio = ratio_of(ranks, times, group, sorted[at]);
    if (ratio < best_ratio) continue;
    best_ratio = ratio;
    best = std::move(group);
  }
  return best;
}

FoundRegions find_regions(std::uint32_t ranks, const Probed& probed) {
  const auto near = clear_groups(ranks, probed.round_trip_s);
  const PairTimes loaded = median_of(probed.exchange_s, ranks);
  const auto fast = probed.exchange_s.empty() ? std::vector<std::uint32_t>() : clear_groups(ranks, loaded);
  if (!near.empty() && !fast.empty() && near != fast) {
    return {one_region(ranks), "one region: round trips and rates fall into different groups"};
  }
  if (near.empty() && fast.empty()) {
    return {one_region(ranks), "one region: neither round trips nor rates fall into clear groups"};
  }
  FoundRegions found{map_of_groups(near.empty() ? fast : near), {}};
  found.how = fmt::format("{} regions, by {}", found.map.regions.size(),
                          near.empty()   ? "rates alone"
                          : fast.empty() ? "round trips alone"
                                         : "round trips and rates");
  if (probed.exchange_s.empty()) return found;
  std::vector<double> within;
  const Times times(ranks, loaded);
  for (Member a = 0; a < ranks; ++a) {
    for (Member b = a + 1; b < ranks; ++b) {
      if (found.map.region_of[a] == found.map.region_of[b]) within.push_back(times.of(a, b));
    }
  }
  const double nic = static_cast<double>(probed.exchange_bytes) / least_of_quarter(std::move(within));
  const std::vector<double> through = uplinks(ranks, found.map, probed);
  for (std::size_t i = 0; i < through.size(); ++i) {
    Region& region = found.map.regions[i];
    // A region of one host has its NIC as uplink, as far as can be seen.
    const double ratio = region.hosts > 1 && through[i] > 0 ? nic * region.hosts / through[i] : 1;
    region.oversubscription = ratio < kLeastOversubscription ? 1 : std::min(ratio, kMostOversubscription);
  }
  return found;
}

std::string to_text(const RegionMap& map, std::uint32_t ranks) {
  const auto members = members_by_region(map);
  std::string text;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].empty()) continue;
    std::string who, helpers;
    for (const Member member : members[i]) {
      std::string& list = member < ranks ? who : helpers;
      list += fmt::format("{}{}", list.empty() ? "" : ",", member < ranks ? member : member - ranks);
    }
    const Region& region = map.regions[i];
    text += region.name;
    if (!who.empty()) text += " ranks=" + who;
    if (!helpers.empty()) text += " helpers=" + helpers;
    text += fmt::format(" hosts={} oversubscription={:.6f}\n", region.hosts, region.oversubscription);
  }
  return text;
}

}  // namespace clustar::paraexpress
