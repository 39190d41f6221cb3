#include "mlt/core/send/send_paths.h"

#include <algorithm>

namespace clustar::mlt {
namespace {

constexpr std::uint32_t kLeastBurstBytes = 1024;  // of a burst; a thousand tiny packets on one path are no burst
constexpr std::uint32_t kSidelinedDoubt = 4;      // as much as so many losses in a row

}  // namespace

SendPaths::SendPaths(const Options& options, std::uint8_t paths)
    : options_(options), selector_(paths, options.path), paths_(paths) {}

std::uint8_t SendPaths::next(std::uint32_t bytes, Rng& rng, TimePoint now) {
  const bool sidelined = selector_.state(burst_path_) == PathSelector::State::kSidelined;
  if (burst_left_ < bytes || burst_left_ == 0 || sidelined) {
    const PathSelector::Choice choice = selector_.choose(rng, now);
    burst_path_ = choice.path;
    burst_left_ = options_.burst_bytes;
    if (choice.probe) {
      burst_left_ = std::min(burst_left_, std::uint32_t{options_.path.probe_packets} * options_.segment);
    }
  }
  burst_left_ -= std::min(burst_left_, std::max(kLeastBurstBytes, bytes));
  return burst_path_;
}

std::uint8_t SendPaths::urgent() const {
  // One that has no sample yet may be dead; one that is sidelined counts too, for the only good one may have failed
  // since.
  const auto doubt = [&](std::uint32_t p) {
    const bool good = selector_.state(p) == PathSelector::State::kGood;
    return paths_[p].lost_in_row + (paths_[p].acked ? 0 : 1) + (good ? 0 : kSidelinedDoubt);
  };
  std::uint32_t best = selector_.best();
  for (std::uint32_t p = 0; p < paths_.size(); ++p) {
    if (doubt(p) > doubt(best)) continue;
    if (doubt(p) < doubt(best) || selector_.srtt(p) < selector_.srtt(best)) best = p;
  }
  return static_cast<std::uint8_t>(best);
}

std::uint8_t SendPaths::of_probe(std::uint64_t number) const {
  return number % 2 == 1 ? urgent() : static_cast<std::uint8_t>(number / 2 % paths_.size());
}

void SendPaths::on_delivered(std::uint8_t path, std::uint32_t packets, std::uint32_t marks, Duration rtt,
                             TimePoint now) {
  for (std::uint32_t i = 0; i < packets; ++i) selector_.on_ack(path, rtt, i < marks, now);
  paths_[path].lost_in_row = 0;
}

void SendPaths::on_loss(std::uint8_t path, TimePoint now) {
  selector_.on_loss(path, now);
  ++paths_[path].lost_in_row;
}

}  // namespace clustar::mlt
