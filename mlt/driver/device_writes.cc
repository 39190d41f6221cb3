#include "mlt/driver/device_writes.h"

#include <algorithm>
#include <utility>

namespace clustar::mlt::driver {

namespace io = transport::io;

void DeviceWrites::write(Owner owner, const io::MemorySlice& target, std::span<const std::byte> bytes) {
  ask(owner, Kind::kWrite, target, bytes);
}

void DeviceWrites::zero(Owner owner, const io::MemorySlice& target) { ask(owner, Kind::kZero, target, {}); }

void DeviceWrites::flush(Owner owner, const io::MemorySlice& target) { ask(owner, Kind::kFlush, target, {}); }

void DeviceWrites::ask(Owner owner, Kind kind, io::MemorySlice target, std::span<const std::byte> bytes) {
  const std::uint64_t number = next_++;
  if (waiting_.empty()) begin(owner, number, kind, target, bytes);
  if (target.length == 0) return;
  waiting_.push_back({owner, number, kind, target, {bytes.begin(), bytes.end()}});
}

void DeviceWrites::begin(Owner owner, std::uint64_t number, Kind kind, io::MemorySlice& target,
                         std::span<const std::byte>& bytes) {
  while (target.length > 0 && !lost_) {
    io::MemorySlice piece = target;
    piece.length = std::min(target.length, writer_.most_bytes());
    if (kind == Kind::kFlush) piece.length = target.length = 1;  // any byte is as good as all
    const auto taken = kind == Kind::kWrite  ? writer_.write(piece, bytes.first(piece.length))
                       : kind == Kind::kZero ? writer_.zero(piece)
                                             : writer_.flush(piece);
    if (!taken) lost_ = taken.error();
    if (!taken || !*taken) return;
    begun_.push_back({owner, number});
    target.offset += piece.length;
    target.length -= piece.length;
    if (kind == Kind::kWrite) bytes = bytes.subspan(piece.length);
  }
}

Result<bool> DeviceWrites::step() {
  if (!busy() && !lost_) return false;
  bool moved = false;
  if (const auto count = writer_.finished(); !count) {
    lost_ = count.error();
  } else {
    moved = *count > ended_;
    for (; ended_ < *count; ++ended_) begun_.pop_front();
  }
  while (!lost_ && !waiting_.empty()) {
    Waiting& first = waiting_.front();
    const std::size_t before = first.target.length;
    std::span<const std::byte> rest = first.bytes;
    if (first.kind == Kind::kWrite) rest = rest.last(before);
    begin(first.owner, first.number, first.kind, first.target, rest);
    moved = moved || first.target.length < before;
    if (first.target.length > 0) break;
    waiting_.pop_front();
  }
  if (lost_) return tl::unexpected(*lost_);
  return moved;
}

std::uint64_t DeviceWrites::finished() const {
  std::uint64_t open = next_;
  if (!waiting_.empty()) open = waiting_.front().number;
  // What is begun comes before what waits, but for the rest of the same one.
  if (!begun_.empty()) open = std::min(open, begun_.front().number);
  return open - 1;
}

void DeviceWrites::wait(Owner owner, std::uint32_t request) { waiters_.push_back({next_ - 1, {owner, request}}); }

std::optional<DeviceWrites::Done> DeviceWrites::poll() {
  while (!waiters_.empty() && waiters_.front().number <= finished()) {
    const Waiter waiter = waiters_.pop_front();
    if (!waiter.dropped) return waiter.done;
  }
  return std::nullopt;
}

void DeviceWrites::drop(Owner owner) {
  std::erase_if(waiting_, [&](const Waiting& each) { return each.owner == owner; });
  for (std::size_t left = waiters_.size(); left > 0; --left) {
    Waiter waiter = waiters_.pop_front();
    waiter.dropped = waiter.dropped || waiter.done.owner == owner;
    waiters_.push_back(waiter);
  }
  bool own = false;
  for (std::size_t left = begun_.size(); left > 0; --left) {
    const Begun begun = begun_.pop_front();
    own = own || begun.owner == owner;
    begun_.push_back(begun);
  }
  if (own) writer_.quiesce();
}

}  // namespace clustar::mlt::driver
