// Whose collectives an engine keeps accounts of.
#include <fmt/format.h>

#include <utility>

#include "mlt/driver/engine.h"

namespace clustar::mlt::driver {

// What may lose nothing though it was allowed to is to be told, once.
void Engine::join_communicator(const transport::ChannelOptions& channel) {
  if (communicators_[channel.comm_id]++ == 0) context_.budgets->enter(channel.comm_id);
  if (channel.max_tolerance_ppm == 0) return;
  constexpr std::uint32_t kMost = LedgerBook::Options{}.communicators;
  tolerant_.insert(channel.comm_id);
  if (tolerant_.size() <= kMost || std::exchange(told_of_tolerant_, true)) return;
  context_.log.warn(fmt::format(
      "mlt: more than {} communicators that may lose something are open on {}: what comes later loses nothing, "
      "until some of them end",
      kMost, name_));
}

// With its last connection its collectives are over: the core remembers a bounded number of communicators.
void Engine::leave_communicator(std::uint64_t communicator) {
  const auto found = communicators_.find(communicator);
  if (--found->second > 0) return;
  communicators_.erase(found);
  tolerant_.erase(communicator);
  core_.forget_communicator(communicator);
  context_.budgets->leave(communicator);
}

}  // namespace clustar::mlt::driver
