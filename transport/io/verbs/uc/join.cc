#include "transport/io/verbs/uc/join.h"

#include <algorithm>
#include <cassert>

namespace clustar::transport::io::verbs::uc {

HeaderBlocks::HeaderBlocks(std::uint32_t count) : blocks_(count) {
  free_.reserve(count);
  for (std::uint32_t i = count; i-- > 0;) free_.push_back(i);
}

std::optional<std::uint32_t> HeaderBlocks::put(std::span<const std::byte> header) {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t block = free_.back();
  free_.pop_back();
  blocks_[block].resize(header.size());
  std::ranges::copy(header, blocks_[block].bytes().begin());
  return block;
}

Join::Join(HeaderBlocks& blocks, std::uint32_t window) : blocks_(blocks), entries_(window) {
  assert(window > 0 && (window & (window - 1)) == 0);
}

Join::~Join() {
  for (Entry& entry : entries_) {
    if (entry.headed && !entry.done) blocks_.free(entry.packet.block);
  }
  while (!ready_.empty()) blocks_.free(ready_.pop_front().block);
}

void Join::forget(Entry& entry) {
  if (!entry.done && entry.headed) {
    ++counters_.lost_writes;
    --waiting_;
    blocks_.free(entry.packet.block);
  } else if (!entry.done && entry.written) {
    ++counters_.lost_headers;
  }
  entry = Entry{};
}

Join::Entry* Join::find(std::uint32_t number) {
  const auto ahead = static_cast<std::int32_t>(number - newest_);
  const std::size_t window = entries_.size();
  if (ahead <= 0 && std::size_t{newest_ - number} >= window) {
    ++counters_.late;
    return nullptr;
  }
  if (ahead > 0) {
    const std::size_t steps = std::min<std::size_t>(static_cast<std::size_t>(ahead), window);
    for (std::size_t i = 0; i < steps; ++i) forget(entries_[(number - i) & (window - 1)]);
    newest_ = number;
  }
  return &entries_[number & (window - 1)];
}

void Join::check(Entry& entry) {
  if (!entry.written || !entry.headed) return;
  entry.done = true;
  ++counters_.joined;
  ready_.push_back(entry.packet);
}

void Join::on_write(std::uint32_t number, std::uint32_t bytes) {
  Entry* entry = find(number);
  if (entry == nullptr) return;
  if (entry->written) {
    ++counters_.duplicate_writes;
    return;
  }
  entry->written = true;
  entry->packet.bytes = bytes;
  if (entry->headed) --waiting_;
  check(*entry);
}

Join::Heard Join::on_header(std::uint32_t number, const WrittenHeader& header, Ecn ecn) {
  Entry* entry = find(number);
  if (entry == nullptr || entry->headed) return Heard::kKnown;
  const auto block = blocks_.put(header.header);
  if (!block) {
    ++counters_.no_block;
    return entry->written ? Heard::kNoRoom : Heard::kNoRoomAndWaits;
  }
  entry->headed = true;
  Packet& packet = entry->packet;
  packet.grant = header.grant;
  packet.segment = header.segment;
  packet.pair = header.pair;
  packet.ecn = ecn;
  packet.block = *block;
  if (!entry->written) ++waiting_;
  check(*entry);
  return entry->done ? Heard::kWhole : Heard::kWaits;
}

void Join::expire() {
  if (waiting_ == 0) return;
  for (Entry& entry : entries_) {
    if (!entry.headed || entry.done) continue;
    if (entry.old) {
      forget(entry);
    } else {
      entry.old = true;
    }
  }
}

std::optional<Join::Packet> Join::poll() {
  if (ready_.empty()) return std::nullopt;
  return ready_.pop_front();
}

bool Join::is_consistent() const {
  std::uint32_t waiting = 0;
  for (const Entry& entry : entries_) {
    if (entry.done != (entry.written && entry.headed)) return false;
    waiting += entry.headed && !entry.written ? 1 : 0;
  }
  return waiting == waiting_;
}

}  // namespace clustar::transport::io::verbs::uc
