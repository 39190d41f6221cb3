// A PacketIo for tests of decorators: keeps what it is sent, takes as much as a test allows, gives what a test queued.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "transport/base/rng.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::io {

struct ManualClock final : Clock {
  TimePoint time{Duration(1)};
  TimePoint now() const override { return time; }
};

class RecordingIo final : public PacketIo {
 public:
  struct Sent {
    TxPacket packet;
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
    std::size_t call;  // of send()
  };

  const Capabilities& capabilities() const override { return can; }
  const LinkProfile& link() const override { return line; }
  AddressBlob local_address() const override { return {}; }
  Result<PeerId> add_peer(const AddressBlob&, const net::Endpoint&) override { return 1; }
  Result<void> remove_peer(PeerId) override { return {}; }
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override {
    if (!registers) return fail(ErrorCode::kUnavailable, "this test registers nothing");
    return std::make_unique<Mr>(memory);
  }
  Result<std::size_t> send(std::span<const TxPacket> packets) override {
    ++calls;
    if (broken) return fail(ErrorCode::kSystem, "this test broke the device");
    std::size_t taken = 0;
    for (const TxPacket& packet : packets) {
      if (packet.header.bytes().empty() || packet.peer == bad_peer) {
        if (taken > 0) break;
        return fail(ErrorCode::kInvalidArgument, "this test takes no such packet");
      }
      if (room == 0) break;
      --room;
      const auto header = packet.header.bytes();
      Sent& kept = sent.emplace_back(Sent{packet, {header.begin(), header.end()}, {}, calls});
      if (packet.payload.mr != nullptr && packet.payload.mr->memory().kind == gdr::MemoryKind::kHost) {
        const std::byte* from = packet.payload.mr->memory().address + packet.payload.offset;
        kept.payload.assign(from, from + packet.payload.length);
      }
      ++taken;
    }
    return taken;
  }
  Result<std::size_t> receive(std::span<RxPacket> packets) override {
    if (broken) return fail(ErrorCode::kSystem, "this test broke the device");
    std::size_t filled = 0;
    for (; filled < packets.size() && !incoming.empty(); ++filled) {
      packets[filled] = incoming.front();
      incoming.pop_front();
    }
    unreleased += filled;
    return filled;
  }
  void release(std::span<const RxPacket> packets) override { unreleased -= packets.size(); }
  PlacementHint expect(PeerId, std::uint64_t, const MemorySlice&, std::size_t) override { return {}; }
  void cancel(PlacementHint) override {}
  void wait(Duration timeout) override { waited.push_back(timeout); }

  LinkProfile line = LinkProfile::usual(LinkKind::kKernel);
  Capabilities can{.max_packet = 256, .header_bytes = 96, .paths = 8};
  std::size_t room = ~std::size_t{0};
  std::size_t calls = 0;
  PeerId bad_peer = 999;
  bool registers = true;
  bool broken = false;
  std::vector<Sent> sent;
  std::deque<RxPacket> incoming;
  std::size_t unreleased = 0;
  std::vector<Duration> waited;
};

// Numbered packets over one buffer with a pattern.
class Packets {
 public:
  explicit Packets(gdr::MemoryKind kind = gdr::MemoryKind::kHost)
      : bytes_(4096), mr_({kind, bytes_.data(), bytes_.size(), -1, 0}) {
    Rng rng(42);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(rng.next());
  }

  TxPacket numbered(std::uint32_t number, std::size_t length = 32, std::uint8_t path = 0, std::uint8_t cls = 0) {
    TxPacket packet;
    packet.peer = 7;
    packet.path = path;
    packet.traffic_class = cls;
    packet.header = Header(8);
    for (std::size_t i = 0; i < 4; ++i) packet.header.bytes()[i] = static_cast<std::byte>(number >> (8 * i));
    packet.payload = {&mr_, number % 3000, length};
    return packet;
  }
  std::vector<TxPacket> sequence(std::uint32_t count, std::uint32_t first = 0) {
    std::vector<TxPacket> all;
    for (std::uint32_t i = 0; i < count; ++i) all.push_back(numbered(first + i));
    return all;
  }
  static std::uint32_t number_of(const RecordingIo::Sent& sent) {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < 4; ++i) number |= std::to_integer<std::uint32_t>(sent.header[i]) << (8 * i);
    return number;
  }
  // Header and payload are as they were made.
  bool whole(const RecordingIo::Sent& sent) {
    const TxPacket made = numbered(number_of(sent), sent.packet.payload.length);
    const auto header = made.header.bytes();
    const auto payload = std::span(bytes_).subspan(made.payload.offset, made.payload.length);
    return std::ranges::equal(sent.header, header) && std::ranges::equal(sent.payload, payload);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  Mr mr_;
};

inline std::vector<std::uint32_t> numbers(const std::vector<RecordingIo::Sent>& sent) {
  std::vector<std::uint32_t> all;
  for (const RecordingIo::Sent& one : sent) all.push_back(Packets::number_of(one));
  return all;
}

}  // namespace clustar::transport::io
