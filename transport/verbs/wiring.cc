#include "transport/verbs/wiring.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace clustar::transport::verbs {

std::size_t Wiring::pairs_of(const Nic& nic) {
  const std::size_t wanted = nic.context().settings.queue_pairs * nic.ports().size();
  return std::clamp(wanted, nic.ports().size(), kMaxQueuePairs);
}

Result<std::unique_ptr<Wiring>> Wiring::make(Nic& nic, Side side, std::size_t count) {
  auto pairs = QueuePairs::make(nic, side, count);
  if (!pairs) return tl::unexpected(pairs.error());
  std::unique_ptr<Wiring> made(new Wiring(nic, side, std::move(*pairs)));
  const LandingLayout landing{nic.eager_bytes()};
  const std::size_t staging = side == Side::kSender ? RingLayout::kSize : landing.size();
  const std::size_t more = side == Side::kSender ? ChannelMemory::kSenderStaging : ChannelMemory::kReceiverStaging;
  auto memory = OwnMemory::make(nic.ports(), staging + more);
  if (!memory) return tl::unexpected(memory.error());
  made->memory_ = {std::move(*memory), staging};
  return made;
}

Wiring::~Wiring() {
  if (thread_.joinable()) thread_.join();
}

Contact Wiring::contact() const {
  Contact contact;
  contact.address = memory_.memory.regions().address(0);
  contact.keys = rkeys_of(memory_.memory.regions());
  contact.eager_bytes = side_ == Side::kReceiver ? nic_.eager_bytes() : 0;
  pairs_.describe(&contact);
  return contact;
}

Result<void> Wiring::start(const Contact& peer, int traffic_class) {
  peer_ = peer;
  const std::size_t both = std::min(peer.queue_pairs.size(), pairs_.size());
  pairs_.cut(both);
  peer_.queue_pairs.resize(both);
  try {
    thread_ = std::thread([this, traffic_class] {
      result_ = connect(traffic_class);
      connected_.store(true, std::memory_order_release);
    });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kSystem, fmt::format("verbs: no thread to connect queue pairs: {}", error.what()));
  }
  return {};
}

Result<void> Wiring::connect(int traffic_class) {
  // Before the peer can send anything.
  for (std::size_t pair = 0; side_ == Side::kReceiver && pair < pairs_.size(); ++pair) {
    if (const auto posted = pairs_.post_receives(pair, QueuePairs::kRecvDepth); !posted) return posted;
  }
  return pairs_.connect(peer_, traffic_class);
}

Result<bool> Wiring::poll() {
  if (!connected_.load(std::memory_order_acquire)) return false;
  if (thread_.joinable()) thread_.join();
  if (!result_) return tl::unexpected(result_.error());
  return true;
}

}  // namespace clustar::transport::verbs
