#include "transport/io/verbs/uc/pair.h"

#include <algorithm>
#include <utility>

#include "transport/base/rng.h"

namespace clustar::transport::io::verbs::uc {

ibv_mtu lesser(ibv_mtu one, std::uint8_t other) {
  return static_cast<ibv_mtu>(std::min<std::uint8_t>(static_cast<std::uint8_t>(one), other));
}

PairMaker::PairMaker(const PairParts& parts) : parts_(parts), thread_([this] { run(); }) {}

PairMaker::~PairMaker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void PairMaker::submit(PairJob job) {
  ++open_;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

std::optional<PairJob> PairMaker::poll() {
  if (open_ == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (done_.empty()) return std::nullopt;
  --open_;
  std::optional<PairJob> job(std::move(done_.front()));
  done_.pop_front();
  return job;
}

void PairMaker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    PairJob job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    perform(job);
    lock.lock();
    done_.push_back(std::move(job));
  }
}

void PairMaker::perform(PairJob& job) const {
  Result<void> done;
  if (job.what != PairJob::What::kConnect) done = make(job);
  if (done && job.what != PairJob::What::kMake) done = connect(job);
  if (!done) job.error = done.error();
}

Result<void> PairMaker::make(PairJob& job) const {
  auto pair = QueuePair::make(*parts_.domain, {.type = IBV_QPT_UC,
                                               .send_queue = parts_.send_queue,
                                               .recv_queue = parts_.recv_queue,
                                               .shared_receives = parts_.receives,
                                               .send_requests = parts_.send_requests});
  if (!pair) return tl::unexpected(pair.error());
  auto done = pair->to_init({.port = parts_.port, .access = IBV_ACCESS_REMOTE_WRITE});
  if (!done) return done;
  const auto psn = static_cast<std::uint32_t>(mix64(pair->number() + job.session * kGoldenGamma)) & 0xffffff;
  const std::uint32_t asked = job.what == PairJob::What::kAnswer ? job.theirs.queue_pair : 0;
  job.ours = {pair->number(), psn, job.key, static_cast<std::uint8_t>(parts_.mtu), asked};
  job.pair.emplace(std::move(*pair));
  return {};
}

Result<void> PairMaker::connect(PairJob& job) const {
  // Another label per path: NICs derive the UDP source port from it, and so switches the way.
  const auto label = static_cast<std::uint32_t>(mix64(pair_path(job.key) + 1)) & 0xfffff;
  const auto own = static_cast<std::uint8_t>(job.dscp != 0 ? job.dscp : pair_class(job.key) << 5);
  const auto done = job.pair->to_rtr({.path = {.peer = job.gid,
                                               .port = parts_.port,
                                               .gid_index = parts_.gid_index,
                                               .lid = parts_.lid,
                                               .traffic_class = parts_.marks.tos(own),
                                               .service_level = parts_.marks.level(own),
                                               .flow_label = label},
                                      .peer_queue_pair = job.theirs.queue_pair,
                                      .peer_psn = job.theirs.psn,
                                      .mtu = lesser(parts_.mtu, job.theirs.mtu)});
  if (!done) return done;
  return job.pair->to_rts({.psn = job.ours.psn});
}

}  // namespace clustar::transport::io::verbs::uc
