#include "bench/fabric/delay/delay_line.h"

#include <algorithm>
#include <utility>

namespace clustar::bench::fabric {
namespace {

constexpr std::size_t kSmallestPacket = 64;
constexpr std::size_t kFirstBytes = 64 * 1024;

std::size_t records_for(std::size_t bytes) { return bytes / kSmallestPacket + 1; }

}  // namespace

DelayLine::DelayLine(std::uint64_t delay_ns, std::size_t capacity_bytes)
    : delay_ns_(delay_ns),
      capacity_bytes_(capacity_bytes),
      memory_(std::min(capacity_bytes, kFirstBytes)),
      records_(records_for(memory_.size())) {}

bool DelayLine::grow() {
  if (memory_.size() >= capacity_bytes_) return false;
  std::vector<std::byte> memory(std::min(capacity_bytes_, 2 * memory_.size()));
  std::vector<Record> records(records_for(memory.size()));
  std::size_t end = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const Record& one = record(i);
    std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(one.offset), one.bytes,
                memory.begin() + static_cast<std::ptrdiff_t>(end));
    records[i] = {end, one.bytes, one.due_ns};
    end += one.bytes;
  }
  memory_ = std::move(memory);
  records_ = std::move(records);
  first_ = 0;
  return true;
}

std::optional<std::size_t> DelayLine::room_for(std::size_t bytes) const {
  if (count_ == 0) return bytes <= memory_.size() ? std::optional<std::size_t>(0) : std::nullopt;
  if (count_ == records_.size()) return std::nullopt;
  const std::size_t head = record(0).offset;
  const std::size_t tail = record(count_ - 1).offset + record(count_ - 1).bytes;
  if (tail > head) {
    if (memory_.size() - tail >= bytes) return tail;
    return head >= bytes ? std::optional<std::size_t>(0) : std::nullopt;
  }
  return head - tail >= bytes ? std::optional(tail) : std::nullopt;
}

bool DelayLine::push(std::span<const std::byte> packet, std::int64_t arrived_ns) {
  auto offset = packet.empty() ? std::nullopt : room_for(packet.size());
  while (!offset && !packet.empty() && packet.size() <= capacity_bytes_ && grow()) offset = room_for(packet.size());
  if (!offset) {
    ++dropped_;
    return false;
  }
  std::copy(packet.begin(), packet.end(), memory_.begin() + static_cast<std::ptrdiff_t>(*offset));
  std::int64_t due_ns = arrived_ns + static_cast<std::int64_t>(delay_ns_);
  if (count_ > 0) due_ns = std::max(due_ns, record(count_ - 1).due_ns);
  records_[(first_ + count_) % records_.size()] = {*offset, packet.size(), due_ns};
  ++count_;
  return true;
}

std::optional<std::int64_t> DelayLine::next_due() const {
  return count_ == 0 ? std::nullopt : std::optional(record(0).due_ns);
}

std::size_t DelayLine::due(std::int64_t now, std::span<std::span<const std::byte>> out) const {
  std::size_t n = 0;
  while (n < out.size() && n < count_ && record(n).due_ns <= now) {
    const Record& one = record(n);
    out[n++] = std::span(memory_).subspan(one.offset, one.bytes);
  }
  return n;
}

void DelayLine::pop(std::size_t packets) {
  first_ = (first_ + packets) % records_.size();
  count_ -= packets;
}

std::size_t delay_capacity(std::uint64_t rate_bps, std::uint64_t delay_ns) {
  constexpr double kMost = 64.0 * 1024 * 1024;
  const double rate = rate_bps == 0 ? 1e10 : static_cast<double>(rate_bps);
  const double product = rate / 8 * static_cast<double>(delay_ns) / 1e9;
  return static_cast<std::size_t>(std::min(2 * product + 512 * 1024, kMost));
}

}  // namespace clustar::bench::fabric
