#include "coflow/control/core/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace clustar::coflow::control {
namespace {

constexpr std::uint32_t kMostRounds = 1000;
// BSSI takes the square of it; more classes go by what they need at their busiest port.
constexpr std::ptrdiff_t kMostSorted = 2048;
constexpr std::uint64_t kBehindTheLast = 1 << 16;

// Which classes meet, directly or through others: by class the number of its component.
class Meetings {
 public:
  Meetings(std::span<const ClassLoad> classes, std::size_t ports) : parents_(classes.size()) {
    std::iota(parents_.begin(), parents_.end(), 0u);
    constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    std::vector<std::uint32_t> first(ports, kNone);
    std::map<std::uint32_t, std::uint32_t> first_of_job;
    for (std::uint32_t i = 0; i < classes.size(); ++i) {
      if (!classes[i].waits) continue;
      for (const BssiItem::Load& load : classes[i].loads) {
        if (first[load.port] == kNone) first[load.port] = i;
        join(i, first[load.port]);
      }
      join(i, first_of_job.emplace(classes[i].job, i).first->second);
    }
  }
  std::uint32_t of(std::uint32_t i) {
    while (parents_[i] != i) i = parents_[i] = parents_[parents_[i]];
    return i;
  }

 private:
  void join(std::uint32_t a, std::uint32_t b) { parents_[of(a)] = of(b); }
  std::vector<std::uint32_t> parents_;
};

}  // namespace

Result<OrderPolicy> order_policy_of(std::string_view name) {
  for (const OrderPolicy policy : {OrderPolicy::kTurns, OrderPolicy::kBssi, OrderPolicy::kArrival}) {
    if (name == to_string(policy)) return policy;
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no policy; allowed: turns, bssi, arrival", name));
}

const char* to_string(OrderPolicy policy) {
  switch (policy) {
    case OrderPolicy::kTurns: return "turns";
    case OrderPolicy::kBssi: return "bssi";
    case OrderPolicy::kArrival: return "arrival";
  }
  return "?";
}

void JobService::served(std::uint32_t job, double seconds, double weight) { jobs_[job] += seconds / weight; }

double JobService::of(std::uint32_t job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second;
}

std::vector<std::uint32_t> JobService::rounds(std::span<const ClassLoad> classes, std::size_t ports) {
  struct Component {
    double least = std::numeric_limits<double>::max(), most = 0, largest = 0;
  };
  Meetings meetings(classes, ports);
  std::map<std::uint32_t, Component> components;
  const auto weighted = [](const ClassLoad& one) { return one.largest / one.weight; };
  for (std::uint32_t i = 0; i < classes.size(); ++i) {
    if (!classes[i].waits) continue;
    Component& its = components[meetings.of(i)];
    its.largest = std::max(its.largest, weighted(classes[i]));
    its.most = std::max(its.most, of(classes[i].job));
  }
  // A claim beyond the credit is none: the least served is brought up to it, by the most served that it meets.
  for (std::uint32_t i = 0; i < classes.size(); ++i) {
    if (!classes[i].waits) continue;
    Component& its = components[meetings.of(i)];
    const double least = its.most - 2 * kCredit * its.largest;
    if (of(classes[i].job) < least) jobs_[classes[i].job] = least;
    its.least = std::min(its.least, of(classes[i].job));
  }
  std::vector<std::uint32_t> rounds(classes.size(), 0);
  for (std::uint32_t i = 0; i < classes.size(); ++i) {
    const auto its = components.find(meetings.of(i));
    if (its == components.end() || its->second.largest <= 0) continue;
    const double ahead = of(classes[i].job) - its->second.least;
    rounds[i] = static_cast<std::uint32_t>(std::clamp<double>(ahead / its->second.largest, 0, kMostRounds));
  }
  return rounds;
}

std::vector<std::uint32_t> total_order(std::span<const ClassLoad> classes, std::size_t ports, OrderPolicy policy,
                                       JobService& service) {
  std::vector<std::uint32_t> order(classes.size());
  std::iota(order.begin(), order.end(), 0u);
  const std::vector<std::uint32_t> rounds =
      policy == OrderPolicy::kTurns ? service.rounds(classes, ports) : std::vector<std::uint32_t>(classes.size(), 0);
  const auto group = [&](std::uint32_t i) {
    const bool promised = classes[i].due.has_value();
    return std::tuple(classes[i].urgency, !promised, promised ? 0 : rounds[i]);
  };
  const auto due = [&](std::uint32_t i) { return classes[i].due.value_or(0); };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(group(a), due(a), classes[a].came, a) < std::tuple(group(b), due(b), classes[b].came, b);
  });
  if (policy == OrderPolicy::kArrival) return order;
  BssiOrder bssi(ports);
  std::vector<BssiItem> items;
  std::vector<std::uint32_t> sorted;
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = std::find_if(begin, order.end(), [&](std::uint32_t i) { return group(i) != group(*begin); });
    if (classes[*begin].due) {  // sorted already
      begin = end;
      continue;
    }
    if (end - begin > kMostSorted) {
      const auto needs = [&](std::uint32_t i) { return classes[i].largest / classes[i].weight; };
      std::sort(begin, end,
                [&](std::uint32_t a, std::uint32_t b) { return std::tuple(needs(a), a) < std::tuple(needs(b), b); });
      begin = end;
      continue;
    }
    items.clear();
    for (auto at = begin; at != end; ++at) items.push_back({classes[*at].loads, classes[*at].weight});
    sorted.clear();
    for (const std::uint32_t at : bssi(items)) sorted.push_back(*(begin + at));
    std::copy(sorted.begin(), sorted.end(), begin);
    begin = end;
  }
  return order;
}

std::vector<std::uint32_t> PlaceNumbers::number(std::span<const std::uint32_t> known) {
  // The longest growing row of known numbers keeps them.
  std::vector<std::uint32_t> tails, before(known.size()), row;
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  for (std::uint32_t i = 0; i < known.size(); ++i) {
    if (known[i] == 0) continue;
    const auto at = std::lower_bound(tails.begin(), tails.end(), known[i],
                                     [&](std::uint32_t tail, std::uint32_t value) { return known[tail] < value; });
    before[i] = at == tails.begin() ? kNone : *(at - 1);
    if (at == tails.end()) {
      tails.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<std::uint32_t> numbers(known.size(), 0);
  for (std::uint32_t i = tails.empty() ? kNone : tails.back(); i != kNone; i = before[i]) numbers[i] = known[i];
  // The others share the gaps.
  for (std::size_t begin = 0; begin < numbers.size();) {
    if (numbers[begin] != 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < numbers.size() && numbers[end] == 0) ++end;
    const std::uint64_t low = begin == 0 ? 0 : numbers[begin - 1];
    const std::uint64_t high = end == numbers.size() ? std::uint64_t{1} << 32 : numbers[end];
    // Behind the last there is room for many to come.
    const std::uint64_t widest = end == numbers.size() ? kBehindTheLast : high - low;
    const std::uint64_t step = std::min((high - low) / (end - begin + 1), widest);
    if (step == 0) {  // no room: all of them in equal steps
      const std::uint64_t wide = (std::uint64_t{1} << 32) / (numbers.size() + 1);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(wide * (i + 1));
      return numbers;
    }
    for (std::size_t i = begin; i < end; ++i) numbers[i] = static_cast<std::uint32_t>(low + step * (i - begin + 1));
    begin = end;
  }
  return numbers;
}

}  // namespace clustar::coflow::control
