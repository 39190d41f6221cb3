#include "bench/lossy/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/lossy/scenario.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kRoundLimit{30'000};
// Senders hear of a round before it begins, so that none begins later for being told last.
constexpr std::int64_t kLeadNs = 1'000'000;

std::int64_t now_ns() { return SteadyClock::now().time_since_epoch().count(); }

}  // namespace

std::int64_t last_arrival(const CrewRound& round) {
  std::int64_t last = 0;
  for (const Arrival& arrival : round.arrivals) last = std::max(last, arrival.at_ns);
  return last;
}

std::vector<JobShare> shares_of(const RoundOutcome& round, const std::vector<std::string>& names, std::size_t bytes) {
  std::int64_t until = last_arrival(round.jobs.front());
  for (const CrewRound& job : round.jobs) until = std::min(until, last_arrival(job));
  std::vector<JobShare> shares;
  double sum = 0;
  for (std::size_t i = 0; i < round.jobs.size(); ++i) {
    double bits = 0;
    for (const Arrival& arrival : round.jobs[i].arrivals) {
      if (arrival.at_ns <= until) bits += 8.0 * static_cast<double>(bytes - arrival.missing);
    }
    shares.push_back({names[i], until > round.go_ns ? bits / static_cast<double>(until - round.go_ns) : 0, 0});
    sum += shares.back().goodput_gbps;
  }
  for (JobShare& share : shares) {
    share.share = sum > 0 ? share.goodput_gbps / sum * static_cast<double>(shares.size()) : 0;
  }
  return shares;
}

Result<Stage> Stage::start(const std::string& arm, const Terms& terms, const std::string& executable,
                           const fabric::Fabric& fabric) {
  Stage stage;
  int first_sender = 1;
  for (const std::string& job : jobs_of(arm)) {
    Terms own = terms;
    const auto found = find_arm(job);
    if (!found) return tl::unexpected(found.error());
    own.arm = *found;
    auto crew = Crew::start(executable, fabric, own, first_sender);
    if (!crew) return tl::unexpected(crew.error());
    first_sender += terms.senders;
    stage.crews_.push_back(std::move(*crew));
  }
  return stage;
}

Result<RoundOutcome> Stage::round() {
  const std::uint32_t number = ++number_;
  RoundOutcome outcome;
  const auto limit = kRoundLimit * (crews_.front()->terms().messages > 1 ? 4 : 1);
  for (const auto& crew : crews_) {
    if (const auto ready = crew->prepare(number, limit); !ready) return tl::unexpected(ready.error());
  }
  outcome.go_ns = now_ns() + kLeadNs;
  for (const auto& crew : crews_) {
    if (const auto gone = crew->go(outcome.go_ns); !gone) return tl::unexpected(gone.error());
  }
  for (const auto& crew : crews_) {
    auto done = crew->finish();
    if (!done) return tl::unexpected(done.error());
    outcome.jobs.push_back(std::move(*done));
  }
  return outcome;
}

Result<json> Stage::facts() {
  json all = json::array();
  for (const auto& crew : crews_) {
    auto one = crew->facts();
    if (!one) return one;
    (*one)["job"] = crew->terms().arm.name;
    all.push_back(std::move(*one));
  }
  return all;
}

// The kernel's own word on the minimum RTO is the RTO that it works with.
Result<void> Stage::check(const json& facts) const {
  for (std::size_t i = 0; i < crews_.size(); ++i) {
    const Arm& arm = crews_[i]->terms().arm;
    const json& sender = facts.at(i).at("sender");
    if (!sender.contains("rto_us")) continue;
    const std::uint32_t rto = sender["rto_us"];
    // It is the smoothed round trip and at least the minimum; a busy machine has long ones.
    const std::uint32_t most = std::max(150'000U, 3 * sender.value("rtt_us", 0U));
    const bool is_short = arm.rto_min_us < 100'000;
    if (rto >= arm.rto_min_us && (!is_short || rto < most)) continue;
    return fail(ErrorCode::kSystem,
                fmt::format("{}: the kernel works with an RTO of {} us where the minimum was set to {} us", arm.name,
                            rto, arm.rto_min_us));
  }
  return {};
}

void Stage::sleep() {
  for (const auto& crew : crews_) crew->sleep();
}

void Stage::wake() {
  for (const auto& crew : crews_) crew->wake();
}

}  // namespace clustar::bench::lossy
