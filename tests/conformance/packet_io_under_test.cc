#include "tests/conformance/packet_io_under_test.h"

#include "transport/base/rng.h"

namespace clustar::transport::conformance {
namespace {

void fill(std::span<std::byte> bytes, unsigned seed) {
  Rng rng(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
}

}  // namespace

Result<void> PacketIoBed::add_peer(std::size_t from, std::size_t to) {
  const auto peer = end(from).add_peer(end(to).local_address(), control(to));
  if (!peer) return tl::unexpected(peer.error());
  peers_[from][to] = *peer;
  return {};
}

Result<void> PacketIoBed::add_all_peers() {
  for (std::size_t from = 0; from < kEnds; ++from) {
    for (std::size_t to = 0; to < kEnds; ++to) {
      if (from == to) continue;
      if (auto added = add_peer(from, to); !added) return added;
    }
  }
  return {};
}

void PacketIoBed::as_in(PacketIoBed& other) {
  for (std::size_t from = 0; from < kEnds; ++from) {
    for (std::size_t to = 0; to < kEnds; ++to) peers_[from][to] = from == to ? 0 : other.peer(from, to);
  }
}

std::vector<Received> collect(PacketIoBed& bed, std::size_t end, std::size_t count, Duration patience) {
  constexpr int kRounds = 100;
  std::vector<Received> all;
  io::RxPacket burst[32];
  for (int quiet = 0; quiet < kRounds && all.size() < count;) {
    const auto received = bed.end(end).receive(burst);
    if (!received) {
      ADD_FAILURE() << received.error().message;
      break;
    }
    for (const io::RxPacket& packet : std::span(burst, *received)) {
      all.push_back(
          {packet, {packet.header.begin(), packet.header.end()}, {packet.payload.begin(), packet.payload.end()}});
    }
    bed.end(end).release(std::span(burst, *received));
    if (*received > 0) {
      quiet = 0;
    } else {
      ++quiet;
      bed.advance(patience / kRounds);
    }
  }
  return all;
}

void send_all(PacketIoBed& bed, std::size_t end, std::span<const io::TxPacket> packets) {
  for (int rounds = 0; !packets.empty(); ++rounds) {
    ASSERT_LT(rounds, 100000) << packets.size() << " packets were never taken";
    const auto taken = bed.end(end).send(packets);
    ASSERT_TRUE(taken) << taken.error().message;
    ASSERT_LE(*taken, packets.size());
    packets = packets.subspan(*taken);
    if (*taken == 0) bed.advance(std::chrono::microseconds(10));
  }
}

PayloadBuffer::PayloadBuffer(io::PacketIo& io, std::size_t size, unsigned seed) : bytes(size) {
  fill(bytes, seed);
  auto registered = io.reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size()));
  EXPECT_TRUE(registered) << registered.error().message;
  if (registered) mr = std::move(*registered);
}

io::Header header_of(std::size_t size, unsigned seed) {
  io::Header header(size);
  fill(header.bytes(), seed);
  return header;
}

}  // namespace clustar::transport::conformance
