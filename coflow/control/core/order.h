// One order of all classes of all hosts. Pure.
//
// The more urgent before the less urgent. Among equally urgent ones those that were promised a deadline go first, the
// earliest before the later; the others by policy: `bssi` as Sincronia orders coflows, by
// weight over what they have left at the busiest ports; `turns` the same among jobs that had about equally much, those
// that had less before (coflow/core/policies/turns.h); `arrival` as they came.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "coflow/core/bssi_order.h"
#include "transport/base/result.h"

namespace clustar::coflow::control {

enum class OrderPolicy : std::uint8_t { kTurns, kBssi, kArrival };
Result<OrderPolicy> order_policy_of(std::string_view name);  // turns | bssi | arrival
const char* to_string(OrderPolicy policy);

struct ClassLoad {
  std::uint32_t job = 0;
  std::uint8_t urgency = 0;
  double weight = 1;                    // > 0
  bool waits = false;                   // something of it is queued somewhere
  std::uint64_t came = 0;               // when it was first heard of, by number
  std::vector<BssiItem::Load> loads{};  // seconds that it still needs at each port that it uses
  double largest = 0;                   // seconds at its bottleneck, of an iteration or coflow
  std::optional<double> due{};          // seconds that are left of a deadline that was promised
};

// What jobs were served, so that they take turns.
class JobService {
 public:
  // The job had the line of its busiest port for so many seconds more.
  void served(std::uint32_t job, double seconds, double weight);
  // By class, of those that wait: how many turns its job is ahead of the least served of those that it meets at a port,
  // directly or through others. Moves claims and debts beyond `credit` largest coflows.
  std::vector<std::uint32_t> rounds(std::span<const ClassLoad> classes, std::size_t ports);
  // It has no agent any more.
  void forget(std::uint32_t job) { jobs_.erase(job); }

  static constexpr double kCredit = 2;

 private:
  double of(std::uint32_t job) const;

  std::map<std::uint32_t, double> jobs_;  // seconds over the weight
};

// Indices into `classes`, first to serve first.
std::vector<std::uint32_t> total_order(std::span<const ClassLoad> classes, std::size_t ports, OrderPolicy policy,
                                       JobService& service);

// A number for each class of `order` (any ids, no two alike), growing along it. Those that keep their places among each
// other keep their numbers as far as that goes, so that few hosts have to be told.
class PlaceNumbers {
 public:
  // `known`: by place in the order, the number that it had; 0: none. New ones are 1 or more.
  static std::vector<std::uint32_t> number(std::span<const std::uint32_t> known);
};

}  // namespace clustar::coflow::control
