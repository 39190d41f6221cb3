#include "paraexpress/communicator/core/standing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "paraexpress/communicator/core/kinds.h"
#include "paraexpress/sums/reduce.h"

namespace clustar::paraexpress {
namespace {

std::string contradiction(const Standing& mine, Member from, const Standing& theirs) {
  return fmt::format(
      "collective {} of this rank is {}, of rank {} it is {}; all ranks must start the same operations "
      "in the same order",
      mine.number, describe(mine), from, describe(theirs));
}

std::string elements(std::uint64_t count, std::uint32_t type, std::uint32_t reduction) {
  if (type >= kDataTypes) return fmt::format("{} elements", count);
  const bool max = reduction == static_cast<std::uint32_t>(Reduction::kMax);
  return fmt::format("{} elements of {}, {}", count, name_of(static_cast<DataType>(type)), max ? "max or min" : "sum");
}

}  // namespace

std::uint32_t pack(std::uint8_t kind, std::uint8_t type_or_use, std::uint8_t reduction, Member root) {
  return static_cast<std::uint32_t>(kind) << 24 | static_cast<std::uint32_t>(type_or_use) << 16 |
         static_cast<std::uint32_t>(reduction) << 8 | (root & 0xff);
}

std::string describe(const Standing& standing) {
  const std::uint32_t type = standing.what >> 16 & 0xff, reduction = standing.what >> 8 & 0xff;
  const std::uint32_t root = standing.what & 0xff;
  switch (static_cast<TaskKind>(standing.what >> 24)) {
    case TaskKind::kAllReduce: return "all_reduce of " + elements(standing.count, type, reduction);
    case TaskKind::kAllGather: return fmt::format("all_gather of {} bytes", standing.count);
    case TaskKind::kReduceScatter: return "reduce_scatter of " + elements(standing.count, type, reduction);
    case TaskKind::kBroadcast: return fmt::format("broadcast of {} bytes from rank {}", standing.count, root);
    case TaskKind::kBarrier: return "barrier";
    case TaskKind::kExchange: return type < kUses ? name_of(static_cast<Use>(type)) : "an exchange";
    case TaskKind::kMessage: break;
  }
  return "an operation that this version does not know";
}

std::optional<std::string> Standings::begun(const Standing& mine) {
  mine_.push_back(mine);
  if (mine_.size() > kRemembered) mine_.pop_front();
  std::optional<std::string> found;
  std::erase_if(heard_, [&](const Heard& one) {
    if (one.theirs.number != mine.number) return false;
    if (one.theirs != mine && !found) found = contradiction(mine, one.from, one.theirs);
    return true;
  });
  return found;
}

std::optional<std::string> Standings::heard(Member from, const Standing& theirs) {
  const auto at = std::ranges::find_if(mine_, [&](const Standing& one) { return one.number == theirs.number; });
  if (at != mine_.end()) {
    return *at == theirs ? std::nullopt : std::optional(contradiction(*at, from, theirs));
  }
  const bool begins = mine_.empty() || theirs.number > mine_.back().number;
  if (begins && heard_.size() < kRemembered * 4) heard_.push_back({from, theirs});
  return std::nullopt;
}

}  // namespace clustar::paraexpress
