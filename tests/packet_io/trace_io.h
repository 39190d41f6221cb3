// Counts packets and keeps the last ones in memory, to be looked at when something went wrong.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "transport/base/system_clock.h"
#include "transport/io/decorators/forwarding_io.h"

namespace clustar::transport::io {

struct TraceIoOptions {
  std::size_t records = 256;     // kept; 0: only count
  const Clock* clock = nullptr;  // outlives the TraceIo; null: the machine's
};

struct TraceCounters {
  std::uint64_t sent_packets = 0;
  std::uint64_t sent_bytes = 0;  // header and payload
  std::uint64_t received_packets = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t marked = 0;         // received with CE
  std::uint64_t trimmed = 0;        // received without their payload
  std::uint64_t back_pressure = 0;  // calls of send() that took less than they were offered
  std::uint64_t errors = 0;         // calls of send() and receive() that failed
};

struct TraceRecord {
  static constexpr std::size_t kPrefix = 16;
  TimePoint time{};  // when it was handed over or received
  bool sent = false;
  PeerId peer = 0;
  std::uint8_t path = 0;
  std::uint8_t traffic_class = 0;
  Ecn ecn = Ecn::kNotEct;
  std::uint8_t header_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::array<std::byte, kPrefix> prefix{};  // of the header
};

class TraceIo final : public ForwardingIo {
 public:
  explicit TraceIo(std::unique_ptr<PacketIo> inner, const TraceIoOptions& options = {});

  Result<std::size_t> send(std::span<const TxPacket> packets) override;
  Result<std::size_t> receive(std::span<RxPacket> packets) override;

  const TraceCounters& counters() const { return counters_; }
  // Oldest first.
  void each(const std::function<void(const TraceRecord&)>& visit) const;
  // The same as text, one call a line, without newline.
  void dump(const std::function<void(std::string_view)>& line) const;

 private:
  TraceRecord* next_record();
  static void set_prefix(TraceRecord& record, std::span<const std::byte> header);

  const std::size_t limit_;
  SystemClock system_clock_;
  const Clock* clock_;
  TraceCounters counters_;
  std::vector<TraceRecord> records_;  // a ring once it is full
  std::size_t oldest_ = 0;
};

}  // namespace clustar::transport::io
