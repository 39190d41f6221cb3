#include "transport/io/decorators/faulty_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace clustar::transport::io {

FaultyIo::FaultyIo(std::unique_ptr<PacketIo> inner, const FaultSpec& spec, const FaultyIoOptions& options)
    : ForwardingIo(std::move(inner)),
      spec_(spec),
      name_(options.name.empty() ? spec.to_string() : options.name),
      clock_(options.clock != nullptr ? options.clock : &system_clock_),
      out_(spec, 0),
      in_(spec, 1) {}

Result<std::unique_ptr<FaultyIo>> FaultyIo::create(std::unique_ptr<PacketIo> inner, const FaultSpec& spec,
                                                   const FaultyIoOptions& options) {
  std::unique_ptr<FaultyIo> io(new FaultyIo(std::move(inner), spec, options));
  if (!spec.copies()) return io;
  const Capabilities& can = io->capabilities();
  const std::size_t count = std::max<std::size_t>(options.held_packets, 2) + (can.copies ? 0 : can.in_flight);
  auto pool = HeldPackets::create(io->inner(), count);
  if (!pool) {
    return fail(pool.error().code, "memory for packets that faults hold back: " + pool.error().message);
  }
  io->pool_ = std::move(*pool);
  io->held_back_.reserve(count);
  io->cooling_.reserve(count);
  io->batch_.reserve(kBurst);
  io->batch_packets_.reserve(kBurst);
  return io;
}

Fate& FaultyIo::fate_of(std::span<const TxPacket> packets, std::size_t index) {
  while (drawn_count_ <= index) {
    const TxPacket& next = packets[drawn_count_];
    drawn_[(drawn_head_ + drawn_count_++) % kBurst] = out_.roll(next.path, next.traffic_class);
  }
  return drawn_[(drawn_head_ + index) % kBurst];
}

void FaultyIo::forget_fates(std::size_t count) {
  drawn_head_ = (drawn_head_ + count) % kBurst;
  drawn_count_ -= count;
}

Result<std::size_t> FaultyIo::send(std::span<const TxPacket> packets) {
  if (!spec_.out() || (!spec_.loses() && !spec_.copies())) {
    auto taken = inner().send(packets);
    if (taken) counters_.taken += *taken, counters_.untouched += *taken;
    return taken;
  }
  const TimePoint at = spec_.copies() ? now() : TimePoint{};  // without them nothing is ever due
  if (auto flushed = flush(at); !flushed) return tl::unexpected(std::move(flushed.error()));
  std::size_t taken = 0;
  while (taken < packets.size() && backlog() == 0) {
    auto more = step(packets.subspan(taken), at);
    if (!more) {
      if (taken > 0) break;                                                   // the next call tells
      if (more.error().code == ErrorCode::kInvalidArgument) forget_fates(1);  // it is not offered again
      return more;
    }
    if (*more == 0) break;
    taken += *more;
    counters_.taken += *more;
    // What it made ready leaves before the next one.
    if (auto flushed = flush(at); !flushed) break;
  }
  took_less_ = taken < packets.size();
  return taken;
}

// Takes packets that meet the same, from the front; 0 if none can be taken now.
Result<std::size_t> FaultyIo::step(std::span<const TxPacket> packets, TimePoint now) {
  const std::size_t most = std::min(packets.size(), next_burst());
  std::size_t run = 0;
  while (run < most && fate_of(packets, run).untouched()) ++run;
  if (run > 0) return send_untouched(packets.first(run));
  const Fate& fate = fate_of(packets, 0);
  // The backend says what is wrong with it.
  if (!can_be_sent(packets[0])) return send_untouched(packets.first(1));
  if (fate.dropped()) return lose(fate);
  if (packets[0].payload.length > 0 && host_bytes(packets[0].payload).empty()) {
    auto taken = send_untouched(packets.first(1));
    if (taken) counters_.not_copied += *taken;
    return taken;
  }
  return hold(packets[0], fate, now);
}

Result<PeerId> FaultyIo::add_peer(const AddressBlob& address, const net::Endpoint& control) {
  auto added = ForwardingIo::add_peer(address, control);
  if (added) std::erase(removed_, *added);
  return added;
}

Result<void> FaultyIo::remove_peer(PeerId peer) {
  constexpr std::size_t kMost = 1024;
  auto removed = ForwardingIo::remove_peer(peer);
  if (!removed) return removed;
  if (removed_.size() == kMost) removed_.erase(removed_.begin());
  removed_.push_back(peer);
  return removed;
}

Result<std::size_t> FaultyIo::send_untouched(std::span<const TxPacket> packets) {
  auto taken = send_inner(packets);
  if (!taken) return taken;
  counters_.untouched += *taken;
  forget_fates(*taken);
  return taken;
}

bool FaultyIo::can_be_sent(const TxPacket& packet) const {
  const Capabilities& can = capabilities();
  const std::size_t header = packet.header.bytes().size();
  const MemorySlice& payload = packet.payload;
  if (header == 0 || header > can.header_bytes || header > can.max_packet) return false;
  if (std::ranges::find(removed_, packet.peer) != removed_.end()) return false;
  if (payload.length > can.max_packet - header || packet.path >= can.paths || packet.traffic_class > 7) return false;
  if (payload.mr == nullptr) return payload.length == 0;
  const std::size_t size = payload.mr->memory().length;
  return payload.offset <= size && payload.length <= size - payload.offset;
}

std::size_t FaultyIo::lose(const Fate& fate) {
  ++(fate.lost ? counters_.lost : counters_.burst_lost);
  forget_fates(1);
  return 1;
}

std::size_t FaultyIo::hold(const TxPacket& packet, const Fate& fate, TimePoint now) {
  if (pool_.available() < (fate.duplicated ? 2u : 1u)) {
    ++counters_.back_pressure;
    return 0;
  }
  counters_.delayed += fate.delayed;
  counters_.reordered += fate.held_back;
  const HeldPackets::Id id = pool_.take(packet, host_bytes(packet.payload));
  if (fate.corrupted) corrupt(id, fate.corrupt_draw);
  last_due_ = std::max(last_due_, now + fate.delay);
  pool_[id].due = fate.delayed ? last_due_ : now;
  pool_[id].held_back = fate.held_back;
  if (fate.duplicated) {
    ++counters_.duplicated;
    const HeldPackets::Id copy = pool_.take(pool_[id].packet, pool_.payload(id));
    pool_[copy].due = pool_[id].due;
    pool_[copy].held_back = fate.held_back;
    place(id, now);
    place(copy, now);
  } else {
    place(id, now);
  }
  forget_fates(1);
  return 1;
}

void FaultyIo::corrupt(HeldPackets::Id id, std::uint64_t draw) {
  const bool header = spec_.corrupt_where != FaultSpec::Where::kPayload;
  const bool payload = spec_.corrupt_where != FaultSpec::Where::kHeader;
  const std::span<std::byte> front = header ? pool_[id].packet.header.bytes() : std::span<std::byte>();
  const std::span<std::byte> back = payload ? pool_.payload(id) : std::span<std::byte>();
  const std::uint64_t bits = (front.size() + back.size()) * 8;
  if (bits == 0) return;
  const auto bit = static_cast<std::uint64_t>((static_cast<unsigned __int128>(draw) * bits) >> 64);
  std::byte& byte = bit / 8 < front.size() ? front[bit / 8] : back[bit / 8 - front.size()];
  byte ^= std::byte{1} << (bit % 8);
  ++counters_.corrupted;
}

// Where a packet that is taken waits first, or next after its delay.
void FaultyIo::place(HeldPackets::Id id, TimePoint now) {
  const HeldPackets::Held& held = pool_[id];
  if (held.due > now) return line_.push_back(id);
  if (!held.held_back) return ready_.push_back(id);
  const std::uint64_t after = spec_.reorder_packets > 0 ? departed_ + backlog() + spec_.reorder_packets
                                                        : std::numeric_limits<std::uint64_t>::max();
  held_back_.push_back({id, after, now + spec_.reorder_time});
}

Result<void> FaultyIo::flush(TimePoint now) {
  while (true) {
    release_held_back(now);
    if (!next_batch(now)) return {};
    auto sent = send_inner(std::span<const TxPacket>(batch_packets_).subspan(batch_sent_));
    std::size_t gone = 0;
    if (sent) {
      gone = *sent;
    } else if (sent.error().code == ErrorCode::kInvalidArgument) {
      gone = 1;
      ++counters_.refused;
    } else {
      return tl::unexpected(std::move(sent.error()));
    }
    if (gone == 0) return {};
    for (; gone > 0; --gone) cooling_.push_back(batch_[batch_sent_++]);
    if (capabilities().copies) cool_down(cooling_.size());
  }
}

void FaultyIo::release_held_back(TimePoint now) {
  std::erase_if(held_back_, [&](const HeldBack& held) {
    const bool over = held.after <= departed_ || held.until <= now;
    if (over) ready_.push_back(held.id);
    return over;
  });
}

// How many packets may leave before a reordered one does.
std::size_t FaultyIo::next_burst() const {
  std::uint64_t most = kBurst;
  for (const HeldBack& held : held_back_) most = std::min(most, held.after - departed_);
  return static_cast<std::size_t>(std::max<std::uint64_t>(most, 1));
}

// False if nothing is ready to leave. Takes no more from the line than a burst, so that a packet that is released after
// it has not the whole line in front of it.
bool FaultyIo::next_batch(TimePoint now) {
  if (batch_sent_ < batch_.size()) return true;
  batch_.clear();
  batch_packets_.clear();
  batch_sent_ = 0;
  while (batch_.size() < next_burst()) {
    if (!ready_.empty()) {
      batch_.push_back(ready_.pop_front());
      batch_packets_.push_back(pool_[batch_.back()].packet);
    } else if (!line_.empty() && pool_[line_.front()].due <= now) {
      place(line_.pop_front(), now);
    } else {
      break;
    }
  }
  return !batch_.empty();
}

Result<std::size_t> FaultyIo::send_inner(std::span<const TxPacket> packets) {
  const std::size_t before = cooling_.size();
  auto taken = inner().send(packets);
  if (!taken) return taken;
  departed_ += *taken;
  if (*taken == 0) return taken;
  const std::size_t passed = before + *taken;  // see Capabilities::copies
  const std::size_t read_later = capabilities().in_flight;
  cool_down(std::min(before, passed - std::min(passed, read_later)));
  return taken;
}

void FaultyIo::cool_down(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) pool_.give_back(cooling_[i]);
  cooling_.erase(cooling_.begin(), cooling_.begin() + static_cast<std::ptrdiff_t>(count));
}

TimePoint FaultyIo::next_due() {
  TimePoint next = TimePoint::max();
  if (!line_.empty()) next = pool_[line_.front()].due;
  for (const HeldBack& held : held_back_) next = std::min(next, held.until);
  return next;
}

Result<std::size_t> FaultyIo::receive(std::span<RxPacket> packets) {
  if (held() > 0) {
    if (auto flushed = flush(now()); !flushed) return tl::unexpected(std::move(flushed.error()));
  }
  while (true) {
    auto received = inner().receive(packets);
    if (!received || *received == 0 || !spec_.in() || !spec_.loses()) return received;
    const std::size_t kept = lose_received(packets.first(*received));
    if (kept > 0) return kept;
  }
}

// Moves those that stay to the front.
std::size_t FaultyIo::lose_received(std::span<RxPacket> packets) {
  std::size_t kept = 0;
  for (const RxPacket& packet : packets) {
    if (in_.roll(packet.path, packet.traffic_class).dropped()) {
      ++counters_.received_lost;
      release(std::span(&packet, 1));
    } else {
      packets[kept++] = packet;
    }
  }
  return kept;
}

void FaultyIo::wait(Duration timeout) {
  if (held() + cooling_.size() == 0) return inner().wait(timeout);
  const TimePoint at = now();
  const std::uint64_t before = departed_;
  // An error that ends the device is what the next call of send() or receive() meets too.
  static_cast<void>(flush(at));
  const bool wait_frees = capabilities().in_flight == 0;
  // Room for what the last send() did not take, of which a backend that just took other packets would not tell.
  const bool room = took_less_ && backlog() == 0 && (departed_ > before || (wait_frees && !cooling_.empty()));
  if (room) timeout = Duration::zero();
  // With a backlog it is the backend that has no room, and tells when it has.
  const TimePoint next = backlog() == 0 ? next_due() : TimePoint::max();
  if (next != TimePoint::max()) timeout = std::min(timeout, std::max(next - at, Duration::zero()));
  const std::size_t handed = cooling_.size();
  inner().wait(timeout);
  if (wait_frees) cool_down(handed);
  static_cast<void>(flush(now()));
}

std::string FaultyIo::describe() const {
  std::string text = ForwardingIo::describe();
  if (!text.empty()) text += "; ";
  text += fmt::format("faults injected on purpose ({}): {} of {} packets lost", name_,
                      counters_.lost + counters_.burst_lost, counters_.taken);
  const auto add = [&text](std::uint64_t value, std::string_view what) {
    if (value > 0) text += fmt::format(", {} {}", value, what);
  };
  add(counters_.reordered, "reordered");
  add(counters_.duplicated, "duplicated");
  add(counters_.corrupted, "corrupted");
  add(counters_.delayed, "delayed");
  add(counters_.received_lost, "lost on the way in");
  add(counters_.not_copied, "from GPU memory left as they were, but for losses");
  return text;
}

}  // namespace clustar::transport::io
