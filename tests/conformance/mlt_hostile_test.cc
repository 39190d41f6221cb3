// MLT under devices that take little, strangers that send much, and faults that only a checksum would notice.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "mlt/core/wire.h"
#include "tests/conformance/mlt_bed.h"
#include "tests/sanitized.h"
#include "transport/io/decorators/faulty_io.h"
#include "transport/io/udp/frame.h"
#include "transport/net/socket.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::HasSubstr;

using Datagram = std::vector<std::byte>;

// As UdpIo frames it.
Datagram frame(std::span<const std::byte> header, std::span<const std::byte> payload) {
  Datagram datagram{static_cast<std::byte>(header.size())};
  datagram.insert(datagram.end(), header.begin(), header.end());
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  return datagram;
}

// Anybody may send to the UDP ports of a device: this one does, from an address of its own.
class Stranger {
 public:
  explicit Stranger(const char* address = "127.0.0.2") {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    inet_pton(AF_INET, address, &from.sin_addr);
    EXPECT_EQ(::bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
  }
  // Round robin over the ports; none is waited for.
  void send(const std::vector<std::uint16_t>& ports, std::span<const Datagram> datagrams) {
    std::vector<sockaddr_in> to(datagrams.size());
    std::vector<iovec> pieces(datagrams.size());
    std::vector<mmsghdr> messages(datagrams.size());
    for (std::size_t i = 0; i < datagrams.size(); ++i) {
      to[i].sin_family = AF_INET;
      to[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to[i].sin_port = htons(ports[next_++ % ports.size()]);
      pieces[i] = {const_cast<std::byte*>(datagrams[i].data()), datagrams[i].size()};
      messages[i].msg_hdr.msg_name = &to[i];
      messages[i].msg_hdr.msg_namelen = sizeof to[i];
      messages[i].msg_hdr.msg_iov = &pieces[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (std::size_t sent = 0; sent < messages.size();) {
      const int now = sendmmsg(socket_.fd(), messages.data() + sent, static_cast<unsigned>(messages.size() - sent), 0);
      if (now <= 0) break;
      sent += static_cast<std::size_t>(now);
    }
  }
  bool heard_anything() {
    std::byte byte;
    return ::recv(socket_.fd(), &byte, 1, MSG_DONTWAIT) >= 0;
  }

 private:
  net::Socket socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  std::size_t next_ = 0;
};

// Counts what is sent, and keeps some of it.
struct Record {
  std::atomic<std::uint64_t> packets{0};
  std::mutex mutex;
  std::vector<Datagram> kept;
};
class RecordingIo final : public io::ForwardingIo {
 public:
  RecordingIo(std::unique_ptr<io::PacketIo> inner, Record& record) : ForwardingIo(std::move(inner)), record_(record) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    const auto sent = ForwardingIo::send(packets);
    const std::lock_guard lock(record_.mutex);
    for (const io::TxPacket& packet : packets.first(sent.value_or(0))) {
      ++record_.packets;
      if (record_.kept.size() >= 512) continue;
      record_.kept.push_back(frame(packet.header.bytes(), io::host_bytes(packet.payload)));
    }
    return sent;
  }

 private:
  Record& record_;
};

// Sends beside each burst what a peer never would: from the right address, and with the connection's own packets as the
// pattern. Old packets again, cut ones, ones with another secret or another type, and noise.
class ForgingIo final : public io::ForwardingIo {
 public:
  explicit ForgingIo(std::unique_ptr<io::PacketIo> inner)
      : ForwardingIo(std::move(inner)), bytes_(kKept * kRoom), kept_(kKept) {
    mr_ = reg_mr(gdr::MemoryRef::host(bytes_.data(), bytes_.size())).value();
  }
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    const auto sent = ForwardingIo::send(packets);
    for (const io::TxPacket& packet : packets.first(sent.value_or(0))) {
      if (++seen_ % 4 != 0) continue;
      keep(packet);
      for (int i = 0; i < 3; ++i) forge();
    }
    return sent;
  }

 private:
  static constexpr std::size_t kKept = 256;
  static constexpr std::size_t kRoom = 65536;

  void keep(const io::TxPacket& packet) {
    const std::size_t slot = random_() % kKept;
    kept_[slot] = packet;
    const auto payload = io::host_bytes(packet.payload);
    std::copy(payload.begin(), payload.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(slot * kRoom));
    kept_[slot].payload = {payload.empty() ? nullptr : mr_.get(), slot * kRoom, payload.size()};
  }
  void forge() {
    io::TxPacket packet = kept_[random_() % kKept];
    const auto header = packet.header.bytes();
    if (header.empty()) return;
    switch (random_() % 5) {
      case 0: break;  // as it was, late
      case 1: packet.payload.length /= 2; break;
      case 2: header[4 + random_() % 8] ^= std::byte{1}; break;  // of the secret
      case 3: {
        io::Header shorter(1 + random_() % header.size());
        std::copy_n(header.begin(), shorter.bytes().size(), shorter.bytes().begin());
        packet.header = shorter;
        break;
      }
      default:
        for (std::byte& byte : header) byte = static_cast<std::byte>(random_());
    }
    if (packet.payload.length == 0) packet.payload = {};
    static_cast<void>(ForwardingIo::send(std::span(&packet, 1)));
  }

  std::mt19937 random_{7};
  std::uint64_t seen_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<io::TxPacket> kept_;
  std::unique_ptr<io::Mr> mr_;
};

// Takes a random part of each burst, often nothing, and looks whether what it refused comes again, first and in order;
// only what was a repetition anyway may have been dropped meanwhile, for its message is over.
struct Order {
  std::atomic<std::uint64_t> packets{0};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::uint64_t> overtaken{0};
};
class PartialIo final : public io::ForwardingIo {
 public:
  PartialIo(std::unique_ptr<io::PacketIo> inner, Order& order) : ForwardingIo(std::move(inner)), order_(order) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    compare(packets);
    const std::size_t most = random_() % 3 == 0 ? random_() % (packets.size() + 1) : random_() % 2;
    const auto sent = ForwardingIo::send(packets.first(std::min(most, packets.size())));
    order_.packets += sent.value_or(0);
    for (const io::TxPacket& packet : packets.first(sent.value_or(0))) {
      const auto data = data_of(packet);
      if (!data) continue;
      const auto key = std::pair(data->secret, mlt::lane_of(data->path, data->traffic_class));
      const auto next = next_.try_emplace(key, 0).first;
      if (data->path_seq < std::exchange(next->second, data->path_seq + 1)) ++order_.overtaken;
    }
    refused_.clear();
    for (const io::TxPacket& packet : packets.subspan(sent.value_or(0))) {
      if (const auto data = data_of(packet)) refused_.push_back(*data);
    }
    return sent;
  }

 private:
  static std::optional<mlt::DataHeader> data_of(const io::TxPacket& packet) {
    const auto parsed = mlt::parse(packet.header.bytes());
    if (!parsed || !std::holds_alternative<mlt::DataHeader>(*parsed)) return std::nullopt;
    return std::get<mlt::DataHeader>(*parsed);
  }
  void compare(std::span<const io::TxPacket> packets) {
    std::size_t at = 0;
    for (const mlt::DataHeader& refused : refused_) {
      while (at < packets.size() && !data_of(packets[at])) ++at;
      if (at < packets.size() && data_of(packets[at]) == refused) {
        ++at;
      } else if (!refused.retransmission) {
        ++order_.dropped;
      }
    }
  }

  Order& order_;
  std::mt19937 random_{3};
  std::map<std::pair<std::uint64_t, std::uint8_t>, std::uint32_t> next_;
  std::vector<mlt::DataHeader> refused_;
};

class MltHostile : public MltBed {};

TEST_F(MltHostile, ADeviceThatTakesPartOfEachBurstLosesAndReordersNothing) {
  for (const char* engine : {"inline", "thread", "auto"}) {
    Order order;
    const auto transport = create({.engine = engine, .wrap = [&](std::unique_ptr<io::PacketIo> inner) {
                                     return std::make_unique<PartialIo>(std::move(inner), order);
                                   }});
    Connection connection = connect(*transport, *transport);
    Connection other = connect(*transport, *transport);
    for (const std::size_t size : {0ul, 1ul, 100000ul, 4000000ul}) {
      transfer(connection, size, 1);
      transfer(other, size, 2);
    }
    const std::string summary = transport->summary();
    EXPECT_EQ(order.dropped, 0u) << engine << ": of " << order.packets << " packets";
    EXPECT_EQ(order.overtaken, 0u) << engine << ": of " << order.packets << " packets";
    // With no thread only who waits for something reads what came last.
    RecvBuffer to(*connection.recv, 1);
    Request* waits = must_recv(*connection.recv, {{to.mr.get(), 0, 1, 99}});
    EXPECT_TRUE(poll_until([&] {
      return !waits->test()->done && count(transport->summary(), " received, ") == order.packets;
    })) << summary;
    // Not 0: what waits for the device counts as sent in the core, whose receiver comes to doubt.
    RecordProperty(std::string("again_") + engine, static_cast<int>(count(summary, " of them again")));
  }
}

TEST_F(MltHostile, NobodyIsSentAPacketBeforeItShowedTheToken) {
  Record record;
  const auto transport = create({.engine = "thread", .wrap = [&](std::unique_ptr<io::PacketIo> inner) {
                                   return std::make_unique<RecordingIo>(std::move(inner), record);
                                 }});
  Connection connection = connect(*transport, *transport);
  transfer(connection, 200000);
  std::vector<Datagram> real;
  {
    const std::lock_guard lock(record.mutex);
    real = record.kept;
  }
  ASSERT_GT(real.size(), 10u);

  // Another device that nobody is connected to: silence, whatever comes.
  Record silent;
  const auto alone = create({.engine = "thread", .wrap = [&](std::unique_ptr<io::PacketIo> inner) {
                               return std::make_unique<RecordingIo>(std::move(inner), silent);
                             }});
  const auto listener = std::move(alone->listen(0, {}).value());
  const net::Address address(driver::HandleInfo::parse(listener->handle())->endpoint);
  const net::Socket caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(caller.fd(), address.raw(), address.length()), 0);
  ASSERT_EQ(::send(caller.fd(), "hello", 5, MSG_NOSIGNAL), 5);
  ASSERT_EQ(listener->poll_accept().value(), nullptr);
  Stranger stranger;
  stranger.send(ports().back(), real);
  ASSERT_TRUE(poll_until([&] { return count(alone->summary(), " from strangers") >= real.size(); }));
  EXPECT_EQ(silent.packets, 0u);
  EXPECT_FALSE(stranger.heard_anything());

  // To the device of the connection, with its secret, but from elsewhere: not even an acknowledgement.
  const std::uint64_t before = count(transport->summary(), " from strangers");
  stranger.send(ports().front(), real);
  ASSERT_TRUE(poll_until([&] { return count(transport->summary(), " from strangers") >= before + real.size(); }));
  EXPECT_FALSE(stranger.heard_anything());
  transfer(connection, 200000);
}

// Random and nearly right packets, from outside and from the peer's own address, while a transfer runs.
TEST_F(MltHostile, AFloodOfStrangersAndForgeriesChangesNoByte) {
  constexpr std::size_t kFlood = tests::kSanitized ? 30000 : 300000;
  constexpr std::size_t kSize = tests::kSanitized ? 1 << 20 : 8 << 20;
  constexpr std::size_t kLeast = tests::kSanitized ? 4 : 13;  // messages, of 100 MB together
  Record record;
  const auto forging = [&](std::unique_ptr<io::PacketIo> inner) -> std::unique_ptr<io::PacketIo> {
    return std::make_unique<RecordingIo>(std::make_unique<ForgingIo>(std::move(inner)), record);
  };
  const auto here = create({.wrap = forging});
  const auto there = create({.wrap = forging});
  Connection connection = connect(*here, *there);
  transfer(connection, 1 << 20);
  const auto all_ports = ports();
  ASSERT_EQ(all_ports.size(), 2u);
  std::atomic<bool> over{false};
  std::thread flood([&] {
    Stranger stranger;
    std::mt19937 random(11);
    std::vector<Datagram> packets;
    {
      const std::lock_guard lock(record.mutex);
      packets = record.kept;  // with the right secret
    }
    const std::size_t real = packets.size();
    for (std::size_t i = 0; i < real; ++i) {
      packets.push_back(packets[i]);  // with another secret
      packets.back()[1 + 4 + i % 8] ^= std::byte{0x10};
      packets.emplace_back(1 + random() % 200);
      for (std::byte& byte : packets.back()) byte = static_cast<std::byte>(random());
    }
    for (std::size_t sent = 0; sent < kFlood; sent += packets.size()) {
      stranger.send(all_ports[sent / packets.size() % 2], packets);
    }
    EXPECT_FALSE(stranger.heard_anything());
    over = true;
  });
  SendBuffer from(*connection.send, kSize, 9);
  for (std::size_t i = 0; (i < kLeast || !over) && !HasFailure(); ++i) {
    RecvBuffer to(*connection.recv, kSize + 64);
    finish(
        {must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 0}}), must_send(*connection.send, *from.mr, 0, kSize)});
    ASSERT_TRUE(std::equal(from.bytes.begin(), from.bytes.end(), to.bytes.begin())) << "message " << i;
    ASSERT_TRUE(
        std::all_of(to.bytes.begin() + kSize, to.bytes.end(), [](auto byte) { return byte == std::byte{0xee}; }));
  }
  flood.join();
  for (const auto& transport : {&here, &there}) {
    const std::string summary = (*transport)->summary();
    EXPECT_GT(count(summary, " strangers dropped"), 0u) << summary;  // forged ones, from the peer's address
    EXPECT_GT(count(summary, " from strangers"), 0u) << summary;     // from another
  }
  EXPECT_THAT(there->summary(), HasSubstr(" 0 bytes missing"));
}

// A wrong bit that UDP's checksum let pass can spoil a message, and even keep one from ever being done: MLT has no
// checksum of its own. It can do no more: no crash, no byte outside of the receive, and closing works.
TEST_F(MltHostile, DamageThatNoChecksumCaughtStaysInsideOfTheReceives) {
  const auto damaged = [](std::uint64_t seed) {
    return [seed](std::unique_ptr<io::PacketIo> inner) -> std::unique_ptr<io::PacketIo> {
      io::FaultSpec spec;
      spec.corrupt = 0.05;
      spec.seed = seed;
      return std::move(io::FaultyIo::create(std::move(inner), spec).value());
    };
  };
  for (std::uint64_t seed = 1; seed <= (tests::kSanitized ? 4 : 12); ++seed) {
    const auto here = create({.wrap = damaged(2 * seed)});
    const auto there = create({.wrap = damaged(2 * seed + 1)});
    Connection connection = connect(*here, *there);
    constexpr std::size_t kSize = 300000;
    SendBuffer from(*connection.send, kSize, 1);
    RecvBuffer to(*connection.recv, kSize + 4096);
    std::vector<Request*> requests;
    for (int i = 0; i < 8; ++i) {
      requests.push_back(must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 0}}));
      requests.push_back(must_send(*connection.send, *from.mr, 0, kSize));
    }
    poll_until(
        [&] {
          for (Request*& request : requests) {
            if (request == nullptr) continue;
            const auto progress = request->test();
            if (!progress || progress->done) request = nullptr;
          }
          return std::ranges::count(requests, nullptr) == std::ssize(requests);
        },
        std::chrono::milliseconds(100));
    ASSERT_TRUE(
        std::all_of(to.bytes.begin() + kSize, to.bytes.end(), [](auto byte) { return byte == std::byte{0xee}; }))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace clustar::transport::conformance
