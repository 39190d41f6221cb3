#include "tests/conformance/udp_io_pair.h"

#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "transport/base/rng.h"

namespace clustar::transport::io::udp {

UdpOptions loopback(std::uint8_t paths) {
  UdpOptions options;
  options.local = "127.0.0.1";
  options.paths = paths;
  options.max_packet = 1472;
  return options;
}

std::unique_ptr<UdpIo> must_open(const UdpOptions& options) {
  auto io = UdpIo::open(options);
  if (!io) throw std::runtime_error(io.error().message);
  return std::move(*io);
}

std::vector<Taken> take(UdpIo& io, std::size_t count, std::chrono::milliseconds quiet_for) {
  std::vector<Taken> all;
  RxPacket burst[64];
  for (int quiet = 0; quiet < quiet_for / std::chrono::milliseconds(10) && all.size() < count;) {
    const auto received = io.receive(burst);
    EXPECT_TRUE(received) << received.error().message;
    if (!received) break;
    for (const RxPacket& one : std::span(burst, *received)) {
      all.push_back({one.peer,
                     one.path,
                     one.traffic_class,
                     one.ecn,
                     {one.header.begin(), one.header.end()},
                     {one.payload.begin(), one.payload.end()}});
    }
    io.release(std::span(burst, *received));
    quiet = *received > 0 ? 0 : quiet + 1;
    if (*received == 0) io.wait(std::chrono::milliseconds(10));
  }
  return all;
}

Pair::Pair(const UdpOptions& sender, std::optional<UdpOptions> receiver)
    : a(must_open(sender)), b(must_open(receiver.value_or(sender))), bytes(128 << 10) {
  b_of_a = a->add_peer(b->local()).value();
  a_of_b = b->add_peer(a->local()).value();
  Rng rng(7);
  for (std::byte& one : bytes) one = static_cast<std::byte>(rng.next());
  mr = a->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())).value();
}

TxPacket Pair::packet(std::uint32_t number, std::size_t length, std::uint8_t path, std::size_t offset) const {
  TxPacket packet;
  packet.peer = b_of_a;
  packet.path = path;
  packet.header = Header(4);
  std::memcpy(packet.header.bytes().data(), &number, 4);
  packet.payload = {mr.get(), offset, length};
  return packet;
}

void Pair::send(std::span<const TxPacket> packets) {
  for (int rounds = 0; !packets.empty(); ++rounds) {
    ASSERT_LT(rounds, 100000);
    const auto taken = a->send(packets);
    ASSERT_TRUE(taken) << taken.error().message;
    packets = packets.subspan(*taken);
    if (!packets.empty()) a->wait(std::chrono::milliseconds(1));
  }
}

std::uint32_t number_of(std::span<const std::byte> header) {
  std::uint32_t number = 0;
  if (header.size() >= 4) std::memcpy(&number, header.data(), 4);
  return number;
}

RawSocket::RawSocket() : socket_(open_path(IpAddress::parse("127.0.0.1").value(), 0, {1 << 20, 1 << 20}).value()) {}

UdpAddress RawSocket::address() const { return {IpAddress::parse("127.0.0.1").value(), {socket_.port}}; }

bool RawSocket::send(const UdpAddress& to, std::span<const std::byte> datagram, std::size_t segment, std::size_t path) {
  const SocketAddress address(to.ip, to.ports[path]);
  const int value = static_cast<int>(segment);
  if (setsockopt(socket_.file.fd(), SOL_UDP, UDP_SEGMENT, &value, sizeof value) != 0 && segment > 0) return false;
  return ::sendto(socket_.file.fd(), datagram.data(), datagram.size(), 0, address.raw(), address.length()) >= 0;
}

int RawSocket::receive_tos() {
  pollfd ready{socket_.file.fd(), POLLIN, 0};
  if (::poll(&ready, 1, 1000) != 1) return -1;
  BufferPool pool(1, 65536);
  RxBatch batch(1);
  return batch.receive(socket_.file.fd(), pool, 1) == 1 ? batch.arrival(0).tos : -1;
}

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

std::string in_own_network(const std::function<void()>& body) {
  std::string reason;
  std::thread thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      reason = "needs root, to make a network namespace: " + describe_errno(errno);
    } else if (!shell("ip link set lo up")) {
      reason = "needs ip, of the package iproute2";
    } else {
      body();
    }
  });
  thread.join();
  return reason;
}

}  // namespace clustar::transport::io::udp
