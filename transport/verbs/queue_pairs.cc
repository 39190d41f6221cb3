#include "transport/verbs/queue_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/net/socket.h"

namespace clustar::transport::verbs {

Result<QueuePairs> QueuePairs::make(const Nic& nic, Side side, std::size_t count) {
  QueuePairs made(nic);
  const std::uint32_t sends = side == Side::kSender ? kSendDepth : kDescribeDepth;
  const std::uint32_t receives = side == Side::kSender ? 1 : kRecvDepth;
  const std::size_t ports = std::min(nic.ports().size(), count);
  const auto per_port = static_cast<std::uint32_t>((count + ports - 1) / ports);
  for (std::size_t i = 0; i < ports; ++i) {
    auto queue =
        io::verbs::CompletionQueue::make(nic.ports()[i].device, static_cast<int>(per_port * (sends + receives)));
    if (!queue) return tl::unexpected(queue.error());
    made.queues_.push_back(std::make_unique<io::verbs::CompletionQueue>(std::move(*queue)));
  }
  made.pairs_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t port = i % ports;
    const Port& on = nic.ports()[port];
    auto pair = io::verbs::QueuePair::make(on.domain, {.send_queue = made.queues_[port].get(),
                                                       .recv_queue = made.queues_[port].get(),
                                                       .send_requests = sends,
                                                       .recv_requests = receives,
                                                       .send_sges = 2,
                                                       .inline_bytes = kInlineBytes});
    if (!pair) return tl::unexpected(pair.error());
    made.inline_bytes_ = std::min(made.inline_bytes_, pair->capacity().max_inline_data);
    const auto initialized = pair->to_init({.port = static_cast<std::uint8_t>(on.info.port),
                                            .pkey_index = nic.context().settings.pkey_index,
                                            .access = IBV_ACCESS_REMOTE_WRITE});
    if (!initialized) return tl::unexpected(initialized.error());
    std::array<std::byte, 4> random;
    if (const auto filled = net::fill_random(random); !filled) return tl::unexpected(filled.error());
    const std::uint32_t psn = std::to_integer<std::uint32_t>(random[0]) |
                              std::to_integer<std::uint32_t>(random[1]) << 8 |
                              std::to_integer<std::uint32_t>(random[2]) << 16;
    made.pairs_.push_back({.port = port, .psn = psn, .pair = std::move(*pair)});
  }
  return made;
}

void QueuePairs::describe(Contact* contact) const {
  for (std::size_t i = 0; i < queues_.size(); ++i) contact->ports.push_back(nic_->ports()[i].contact());
  for (const Line& pair : pairs_) {
    contact->queue_pairs.push_back({pair.pair->number(), pair.psn, static_cast<std::uint8_t>(pair.port)});
  }
}

Result<void> QueuePairs::connect(const Contact& peer, int traffic_class) {
  const Settings& settings = nic_->context().settings;
  const int wanted = settings.traffic_class >= 0 ? settings.traffic_class : std::max(traffic_class, 0);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    Line& pair = pairs_[i];
    const QueuePairContact& other = peer.queue_pairs[i];
    const PortContact& there = peer.ports[other.port];
    const Port& here = nic_->ports()[pair.port];
    auto path = here.path_to(there);
    if (!path) return tl::unexpected(path.error());
    path->traffic_class = static_cast<std::uint8_t>(wanted);
    path->service_level = settings.service_level >= 0 ? static_cast<std::uint8_t>(settings.service_level)
                                                      : service_level_of(traffic_class);
    const auto mtu = static_cast<ibv_mtu>(std::min<int>(here.mtu, there.mtu));
    const auto heard =
        pair.pair->to_rtr({.path = *path, .peer_queue_pair = other.number, .peer_psn = other.psn, .mtu = mtu});
    if (!heard) return heard;
    if (const auto ready = pair.pair->to_rts({.psn = pair.psn, .retry = settings.retry}); !ready) return ready;
    pair.peer_port = other.port;
  }
  return {};
}

Result<void> QueuePairs::post_receives(std::size_t pair, std::uint32_t count) const {
  constexpr std::uint32_t kChain = 16;
  std::array<ibv_recv_wr, kChain> chain{};
  while (count > 0) {
    const std::uint32_t now = std::min(count, kChain);
    for (std::uint32_t i = 0; i < now; ++i) {
      chain[i] = {.wr_id = WorkId{static_cast<std::uint32_t>(pair), 0, true}.id(),
                  .next = i + 1 < now ? &chain[i + 1] : nullptr,
                  .sg_list = nullptr,
                  .num_sge = 0};
    }
    if (const auto posted = pairs_[pair].pair->post(chain[0]); !posted) return posted;
    count -= now;
  }
  return {};
}

Result<std::size_t> QueuePairs::poll(std::span<ibv_wc> out) {
  // Each queue in turn, so that a busy one does not hide the others.
  for (std::size_t tried = 0; tried < queues_.size(); ++tried) {
    const auto taken = queues_[next_queue_]->poll(out);
    next_queue_ = (next_queue_ + 1) % queues_.size();
    if (!taken || *taken > 0) return taken;
  }
  return 0;
}

}  // namespace clustar::transport::verbs
