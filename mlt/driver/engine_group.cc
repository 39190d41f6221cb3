#include "mlt/driver/engine_group.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

namespace clustar::mlt::driver {
namespace {

// Each costs sockets, receive buffers and a thread.
constexpr std::size_t kMostByItself = 8;
// With one engine any caller moves the bytes of all; with several a thread that waits for bytes of another's engine
// waits until that other thread runs. On 8 and 16 processors an engine for each thread was 2 to 9 times as fast as one
// engine, up to two threads per processor; on 2 and 4, more threads than processors take up to ten times as long
// (docs/results/gpu-2026-11-27.md, mlt-wire-2026-11-21.md). Half the processors leave room for the program.
constexpr std::size_t kProcessorsEach = 2;
constexpr std::size_t kProcessorsForSeveral = 8;

}  // namespace

std::size_t most_engines(std::size_t wanted, std::size_t nics, std::size_t processors) {
  if (wanted > 0) return wanted;
  if (processors < kProcessorsForSeveral) return 1;
  return std::clamp<std::size_t>(processors / (kProcessorsEach * std::max<std::size_t>(nics, 1)), 1, kMostByItself);
}

std::size_t usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // It fails with more processors than the set has places for: then there are enough.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return CPU_SETSIZE;
  return static_cast<std::size_t>(CPU_COUNT(&set));
}

std::size_t EngineGroup::least_used() const {
  std::vector<std::size_t> users(engines_.size());
  for (const User& user : users_) ++users[user.engine];
  // Its users end, so that it would be the next one's forever.
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i]->is_lost()) users[i] = users_.size() + 1;
  }
  return static_cast<std::size_t>(std::ranges::min_element(users) - users.begin());
}

Result<std::shared_ptr<Engine>> EngineGroup::engine_for(const transport::ChannelOptions& channel, const Open& open) {
  std::erase_if(users_, [](const User& user) { return user.held.expired(); });
  std::optional<std::uint64_t> communicator = channel.comm_id;
  if (mode_ == EngineMode::kThread && channel.max_tolerance_ppm == 0) communicator.reset();
  if (communicator) {
    const auto known = std::ranges::find(users_, communicator, &User::communicator);
    if (known != users_.end()) {
      if (auto held = known->held.lock()) return held;
    }
  }
  // One is free as long as each user could have its own.
  if (engines_.size() < most_ && users_.size() >= engines_.size()) {
    auto opened = open(*traffic_);
    if (opened) {
      engines_.push_back(std::move(*opened));
      // A policy orders what leaves the NIC, so it must see all of it.
      if (engines_.front()->has_policy()) most_ = 1;
    } else if (engines_.empty()) {
      return tl::unexpected(opened.error());
    } else {
      most_ = engines_.size();
      engines_.front()->context().log.warn(fmt::format("mlt: no further engine on {}: {}; going on with {}",
                                                       engines_.front()->name(), opened.error().message, most_));
    }
  }
  const std::size_t chosen = least_used();
  // The group owns it; a connection only says that it is in use.
  std::shared_ptr<Engine> held(engines_[chosen].get(), [](Engine*) {});
  users_.push_back({communicator, chosen, held});
  return held;
}

EngineCounters EngineGroup::counters() const {
  EngineCounters sum;
  for (const auto& engine : engines_) sum += engine->counters();
  return sum;
}

}  // namespace clustar::mlt::driver
