#include "coflow/enforce/host_policies.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "coflow/control/agent_thread.h"
#include "coflow/enforce/board_file.h"
#include "coflow/enforce/host_policy.h"

namespace clustar::coflow::enforce {
namespace {

using transport::SendPolicy;

constexpr std::uint64_t kChunk = 16 * 1024;  // transport::kOrderedChunk: the longest part that nothing interrupts

// The same in all processes, or those that may be further ahead of the line keep the others from it.
constexpr Duration kBurst = std::chrono::microseconds(20);

struct Place {
  std::unique_ptr<BoardPlace> place;
};
// A HostPolicy and the place on the board that it writes to: a base, so that it outlives the policy.
class PlacedPolicy final : private Place, public HostPolicy {
 public:
  PlacedPolicy(const HostPolicyOptions& options, const BoardOptions& board, std::unique_ptr<BoardPlace> its_place,
               std::shared_ptr<control::ClassPlaces> places)
      : Place{std::move(its_place)},
        HostPolicy(options, std::make_unique<Board>(place->state(), place->slot(), board), std::move(places)) {}
};

class HostPolicies final : public transport::SendPolicies {
 public:
  HostPolicies(const SendOrderSettings& settings, Log log, std::unique_ptr<control::AgentThread> agent)
      : settings_(settings), log_(std::move(log)), agent_(std::move(agent)) {}

  std::unique_ptr<SendPolicy> make(const Nic& nic) override {
    auto place = BoardPlace::claim(nic.name);
    if (!place) {
      log_.warn(fmt::format("send order: processes that share {} do not hear of each other: {}", nic.name,
                            place.error().message));
      place = BoardPlace::alone();
    }
    const auto paced = static_cast<std::uint64_t>(static_cast<double>(nic.bytes_per_second) * settings_.pace / 100);
    if (paced == 0) {
      log_.info(
          fmt::format("send order: the speed of {}'s line is not known (CLUSTAR_LINE_MBPS): nothing is paced, "
                      "and no process waits for another",
                      nic.name));
    }
    HostPolicyOptions options;
    options.knows_line = paced > 0;
    options.burst = kBurst + time_of(kChunk, paced) / 4;
    options.by_size = settings_.by_size == "on";
    options.push = settings_.push == "on";
    BoardOptions board;
    board.bytes_per_second = paced;
    board.job = static_cast<std::uint32_t>(settings_.job);
    board.weight = static_cast<std::uint32_t>(settings_.weight);
    board.chunk = kChunk;
    options.job = board.job;
    std::shared_ptr<control::ClassPlaces> places;
    if (agent_ != nullptr) places = agent_->add({nic.name, nic.bytes_per_second});
    return std::make_unique<PlacedPolicy>(options, board, std::move(*place), std::move(places));
  }

 private:
  static Duration time_of(std::uint64_t bytes, std::uint64_t bytes_per_second) {
    if (bytes_per_second == 0) return Duration(0);
    return Duration(
        static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_second)));
  }

  const SendOrderSettings settings_;
  const Log log_;
  const std::unique_ptr<control::AgentThread> agent_;  // null: no coordinator
};

}  // namespace

Result<std::shared_ptr<transport::SendPolicies>> host_policies(const SendOrderSettings& settings, Log log) {
  if (settings.order != "coflow") return nullptr;
  std::unique_ptr<control::AgentThread> agent;
  if (!settings.coordinators.empty()) {
    auto started = control::AgentThread::start({.coordinators = settings.coordinators,
                                                .key_file = settings.coordinator_key_file,
                                                .tenant = settings.tenant,
                                                .job = static_cast<std::uint32_t>(settings.job),
                                                .weight = static_cast<std::uint32_t>(settings.weight),
                                                .deadline = std::chrono::milliseconds(settings.deadline_ms)},
                                               log);
    if (!started) return tl::unexpected(started.error());
    agent = std::move(*started);
  }
  return std::make_shared<HostPolicies>(settings, std::move(log), std::move(agent));
}

}  // namespace clustar::coflow::enforce
