#include "tests/packet_io/trace_io.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace clustar::transport::io {

TraceIo::TraceIo(std::unique_ptr<PacketIo> inner, const TraceIoOptions& options)
    : ForwardingIo(std::move(inner)),
      limit_(options.records),
      clock_(options.clock != nullptr ? options.clock : &system_clock_) {
  records_.reserve(limit_);
}

// Null if none are kept.
TraceRecord* TraceIo::next_record() {
  if (limit_ == 0) return nullptr;
  if (records_.size() < limit_) return &records_.emplace_back();
  TraceRecord& reused = records_[oldest_];
  oldest_ = (oldest_ + 1) % limit_;
  return &reused;
}

void TraceIo::set_prefix(TraceRecord& record, std::span<const std::byte> header) {
  record.header_bytes = static_cast<std::uint8_t>(std::min<std::size_t>(header.size(), 255));
  record.prefix = {};
  std::ranges::copy(header.first(std::min(header.size(), TraceRecord::kPrefix)), record.prefix.begin());
}

Result<std::size_t> TraceIo::send(std::span<const TxPacket> packets) {
  auto taken = inner().send(packets);
  if (!taken) {
    ++counters_.errors;
    return taken;
  }
  counters_.back_pressure += *taken < packets.size();
  const TimePoint now = *taken > 0 ? clock_->now() : TimePoint{};
  for (const TxPacket& packet : packets.first(*taken)) {
    const std::span<const std::byte> header = packet.header.bytes();
    ++counters_.sent_packets;
    counters_.sent_bytes += header.size() + packet.payload.length;
    TraceRecord* record = next_record();
    if (record == nullptr) continue;
    *record = {.time = now, .sent = true, .peer = packet.peer, .path = packet.path};
    record->traffic_class = packet.traffic_class;
    record->ecn = packet.ect ? Ecn::kEct0 : Ecn::kNotEct;
    record->payload_bytes = static_cast<std::uint32_t>(packet.payload.length);
    set_prefix(*record, header);
  }
  return taken;
}

Result<std::size_t> TraceIo::receive(std::span<RxPacket> packets) {
  auto received = inner().receive(packets);
  if (!received) {
    ++counters_.errors;
    return received;
  }
  const TimePoint now = *received > 0 ? clock_->now() : TimePoint{};
  for (const RxPacket& packet : packets.first(*received)) {
    ++counters_.received_packets;
    counters_.received_bytes += packet.header.size() + packet.payload.size();
    counters_.marked += packet.ecn == Ecn::kCe;
    counters_.trimmed += packet.trimmed;
    TraceRecord* record = next_record();
    if (record == nullptr) continue;
    *record = {.time = now, .sent = false, .peer = packet.peer, .path = packet.path};
    record->traffic_class = packet.traffic_class;
    record->ecn = packet.ecn;
    record->payload_bytes = static_cast<std::uint32_t>(packet.payload.size());
    set_prefix(*record, packet.header);
  }
  return received;
}

void TraceIo::each(const std::function<void(const TraceRecord&)>& visit) const {
  for (std::size_t i = 0; i < records_.size(); ++i) visit(records_[(oldest_ + i) % records_.size()]);
}

void TraceIo::dump(const std::function<void(std::string_view)>& line) const {
  each([&line](const TraceRecord& record) {
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), "%lld ns %s peer %u path %u class %u ecn %u header %u payload %u",
                  static_cast<long long>(record.time.time_since_epoch().count()), record.sent ? "out" : "in",
                  unsigned{record.peer}, unsigned{record.path}, unsigned{record.traffic_class},
                  static_cast<unsigned>(record.ecn), unsigned{record.header_bytes}, unsigned{record.payload_bytes});
    std::string all = text.data();
    all += " |";
    for (std::size_t i = 0; i < std::min<std::size_t>(record.header_bytes, TraceRecord::kPrefix); ++i) {
      std::array<char, 4> hex{};
      std::snprintf(hex.data(), hex.size(), " %02x", std::to_integer<unsigned>(record.prefix[i]));
      all += hex.data();
    }
    line(all);
  });
}

}  // namespace clustar::transport::io
