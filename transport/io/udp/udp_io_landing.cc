// Payload into landings: when a message may be scattered, and what is done with it.
#include <algorithm>
#include <cerrno>

#include "transport/io/udp/udp_io.h"

namespace clustar::transport::io::udp {
namespace {

// Below this the second system call (the peek) costs more than the copy that it saves.
constexpr std::size_t kLeastBytes = 16384;

}  // namespace

Landing UdpIo::expect(PeerId peer, std::uint64_t slot, const MemorySlice& target, std::size_t segment_bytes) {
  if (slot > ~std::uint32_t{0} || scatter_ == nullptr || segment_bytes < least_segment_) return {};
  if (!peers_.known(peer) || target.mr == nullptr) return {};
  const gdr::MemoryRef& memory = target.mr->memory();
  if (memory.kind != gdr::MemoryKind::kHost || target.offset > memory.length ||
      target.length > memory.length - target.offset) {
    return {};
  }
  return landings_.add(peer, static_cast<std::uint32_t>(slot), {memory.address + target.offset, target.length},
                       segment_bytes);
}

Result<bool> UdpIo::read_into_landings(std::uint8_t path, std::size_t most) {
  const int fd = paths_[path].socket.file.fd();
  // One buffer for the headers, one for what was predicted wrongly.
  for (std::size_t packets = 0; packets < most && pool_->free() >= 2;) {
    ++counters_.peek_calls;
    const auto ahead = scatter_->peek(fd);
    Located located;
    const auto prediction = ahead ? predict(path, *ahead, located) : std::nullopt;
    if (!prediction) return false;
    const BufferId buffer = pool_->take();
    const ssize_t length = scatter_->receive(fd, pool_->bytes(buffer), *prediction);
    const int error = errno;
    ++counters_.receive_calls;
    if (length < 0) {
      pool_->drop(buffer);
      if (error == EFAULT) {  // the target's memory is gone; so is the message
        landings_.cancel(*peers_.sender(scatter_->from(), path), located.slot);
        ++counters_.refused;
        return true;
      }
      if (auto done = on_receive_error(error); !done) return tl::unexpected(done.error());
      return true;
    }
    packets += prediction->count;
    take_scattered(path, *prediction, located.slot, buffer);
  }
  return true;
}

std::optional<ScatterRead::Prediction> UdpIo::predict(std::uint8_t path, const ScatterRead::Ahead& ahead,
                                                      Located& located) {
  if (ahead.length < kLeastBytes) return std::nullopt;
  const auto peer = peers_.sender(scatter_->from(), path);
  const auto place = peer ? locate_(ahead.header) : std::nullopt;
  LandingTarget* target = place ? landings_.find(*peer, place->slot) : nullptr;
  if (target == nullptr || place->segment >= target->segments()) return std::nullopt;
  const std::size_t slot_bytes = kFrameBytes + ahead.header.size();
  if (ahead.segment != slot_bytes + target->place(place->segment).size()) return std::nullopt;
  const std::size_t datagrams = (ahead.length + ahead.segment - 1) / ahead.segment;
  const std::size_t count = target->missing_from(place->segment, std::min(datagrams, ScatterRead::kMostDatagrams));
  if (count == 0) return std::nullopt;
  located = *place;
  return ScatterRead::Prediction{target, place->segment, count, slot_bytes};
}

// Becomes up to two messages of the usual kind: headers without payload, and in a buffer of its own what is not at its
// place. Nothing that was predicted wrongly stays in the target, which may get the right bytes with the next message.
void UdpIo::take_scattered(std::uint8_t path, const ScatterRead::Prediction& prediction, std::uint32_t slot,
                           BufferId buffer) {
  const TimePoint now = clock_.now();
  Arrival whole = scatter_->arrival();
  const auto peer = peers_.sender(scatter_->from(), path);
  const bool ours = peer && !whole.truncated && landings_.find(*peer, slot) == prediction.target;
  const std::size_t right = ours ? scatter_->matching(locate_, slot) : 0;
  Arrival rest = whole;
  rest.buffer = pool_->take();
  rest.length = static_cast<std::uint32_t>(scatter_->gather(right, pool_->bytes(rest.buffer)));
  rest.segment = std::min(rest.segment, rest.length);
  counters_.packets_placed += right;
  if (right < prediction.count && rest.length > 0) {
    const std::size_t datagrams = (rest.length + rest.segment - 1) / rest.segment;
    counters_.packets_moved += std::min(prediction.count - right, datagrams);
  }
  if (right == 0) {
    pool_->drop(buffer);
    return accept(path, rest, scatter_->from(), now);
  }
  // accept() and deliver() will see the headers only.
  counters_.bytes_received +=
      std::min<std::size_t>(whole.length, right * whole.segment) - right * prediction.slot_bytes;
  for (std::size_t i = 0; i < right; ++i) prediction.target->deliver(prediction.first + i);
  whole.buffer = buffer;
  whole.length = static_cast<std::uint32_t>(right * prediction.slot_bytes);
  whole.segment = static_cast<std::uint32_t>(prediction.slot_bytes);
  accept(path, whole, scatter_->from(), now);
  if (rest.length == 0) {
    pool_->drop(rest.buffer);
  } else {
    accept(path, rest, scatter_->from(), now);
    --counters_.messages_received;  // both are one of the kernel's
  }
}

void UdpIo::mark_delivered(PeerId peer, std::span<const std::byte> header) {
  const auto located = locate_(header);
  LandingTarget* target = located ? landings_.find(peer, located->slot) : nullptr;
  if (target != nullptr) target->deliver(located->segment);
}

}  // namespace clustar::transport::io::udp
