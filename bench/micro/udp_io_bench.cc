// Kernel UDP on loopback: through UdpIo, and by bare system calls with the same packets.
#include <benchmark/benchmark.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "transport/io/udp/udp_io.h"

namespace clustar::bench::micro {
namespace {

using namespace transport::io;
using namespace transport::io::udp;

constexpr std::size_t kHeader = 88;  // MLT's data packet
constexpr std::size_t kPackets = 320;
constexpr std::size_t kRun = 40;  // packets of one path in a row
constexpr std::uint8_t kPaths = 8;
constexpr std::size_t kCold = 64 << 20;

std::vector<std::byte>& cold_memory() {
  static std::vector<std::byte> bytes(kCold, std::byte{1});
  return bytes;
}

void report(benchmark::State& state, std::size_t payload) {
  const auto iterations = static_cast<std::int64_t>(state.iterations());
  state.SetItemsProcessed(iterations * static_cast<std::int64_t>(kPackets));
  state.SetBytesProcessed(iterations * static_cast<std::int64_t>(kPackets * payload));
}

UdpOptions options_of(bool offloads) {
  UdpOptions options;
  options.local = "127.0.0.1";
  options.paths = kPaths;
  options.max_packet = 9000;
  options.allow_gso = options.allow_gro = offloads;
  return options;
}

bool send_all(UdpIo& io, std::span<const TxPacket> packets) {
  while (!packets.empty()) {
    const auto taken = io.send(packets);
    if (!taken) return false;
    packets = packets.subspan(*taken);
  }
  return true;
}

void udp_io_loopback(benchmark::State& state) {
  const auto payload = static_cast<std::size_t>(state.range(1));
  auto a = UdpIo::open(options_of(state.range(0) != 0));
  auto b = UdpIo::open(options_of(state.range(0) != 0));
  if (!a || !b) return state.SkipWithError("loopback UDP cannot be opened");
  TxPacket packet;
  packet.peer = (*a)->add_peer((*b)->local()).value();
  static_cast<void>((*b)->add_peer((*a)->local()));
  packet.header = Header(kHeader);
  const auto mr = (*a)->reg_mr(gdr::MemoryRef::host(cold_memory().data(), kCold)).value();
  std::vector<TxPacket> packets(kPackets, packet);
  std::array<RxPacket, 64> burst;
  std::size_t offset = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < kPackets; ++i, offset += payload) {
      if (offset + payload > kCold) offset = 0;
      packets[i].path = static_cast<std::uint8_t>(i / kRun % kPaths);
      packets[i].payload = {mr.get(), offset, payload};
    }
    // A run at a time, so that what is in flight fits into a socket's default buffer.
    for (std::size_t begin = 0; begin < kPackets; begin += kRun) {
      if (!send_all(**a, std::span(packets).subspan(begin, kRun))) return state.SkipWithError("send failed");
      for (std::size_t left = kRun; left > 0;) {
        const std::size_t got = (*b)->receive(burst).value_or(0);
        (*b)->release(std::span(burst).first(got));
        if (got == 0) return state.SkipWithError("a packet was lost on loopback");
        left -= got;
      }
    }
  }
  report(state, payload);
  const double all = static_cast<double>(state.iterations()) * kPackets;
  const auto& tx = (*a)->counters();
  const auto& rx = (*b)->counters();
  state.counters["calls_each"] =
      static_cast<double>(tx.send_calls + rx.receive_calls + rx.poll_calls) / (all > 0 ? all : 1);
}

std::size_t receive_once(int fd, std::span<std::byte> into) {
  iovec all{into.data(), into.size()};
  std::array<std::byte, 128> control;
  msghdr message{};
  message.msg_iov = &all;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd, &message, 0);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

// One path, no framing, no peers, no memory to look up, one message per call.
void bare_loopback(benchmark::State& state) {
  const bool offloads = state.range(0) != 0;
  const auto payload = static_cast<std::size_t>(state.range(1));
  const IpAddress local = IpAddress::parse("127.0.0.1").value();
  auto a = open_path(local, 0, {4 << 20, 4 << 20, false});
  auto b = open_path(local, 0, {4 << 20, 4 << 20, offloads});
  if (!a || !b) return state.SkipWithError("loopback UDP cannot be opened");
  const SocketAddress to(local, b->port);
  if (::connect(a->file.fd(), to.raw(), to.length()) != 0) return state.SkipWithError("connect failed");
  const std::size_t joined = offloads ? std::min<std::size_t>(kRun, 65000 / (kHeader + payload)) : 1;
  const int segment = static_cast<int>(kHeader + payload);
  if (joined > 1) setsockopt(a->file.fd(), SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
  std::vector<std::byte> headers(kHeader * kRun);
  std::vector<iovec> pieces(2 * kRun);
  std::vector<std::byte> into(65536);
  std::size_t offset = 0;
  const auto send_some = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, offset += payload) {
      if (offset + payload > kCold) offset = 0;
      pieces[2 * i] = {headers.data() + i * kHeader, kHeader};
      pieces[2 * i + 1] = {cold_memory().data() + offset, payload};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = 2 * count;
    return ::sendmsg(a->file.fd(), &message, 0) >= 0;
  };
  for (auto _ : state) {
    for (std::size_t run = 0; run < kPackets; run += kRun) {
      for (std::size_t sent = 0; sent < kRun; sent += joined) {
        if (!send_some(std::min(joined, kRun - sent))) return state.SkipWithError("sendmsg failed");
      }
      for (std::size_t left = kRun * (kHeader + payload); left > 0;) {
        const std::size_t got = receive_once(b->file.fd(), into);
        if (got == 0) return state.SkipWithError("a packet was lost on loopback");
        left -= got;
      }
    }
  }
  report(state, payload);
}

void idle_receive(benchmark::State& state) {
  UdpOptions options = options_of(true);
  options.paths = static_cast<std::uint8_t>(state.range(0));
  auto io = UdpIo::open(options);
  if (!io) return state.SkipWithError("loopback UDP cannot be opened");
  RxPacket one;
  for (auto _ : state) benchmark::DoNotOptimize((*io)->receive(std::span(&one, 1)));
}

const std::vector<std::vector<std::int64_t>> kCases = {{0, 1}, {1384, 8884}};
BENCHMARK(udp_io_loopback)->Name("udp_io/loopback")->ArgNames({"offloads", "payload"})->ArgsProduct(kCases);
BENCHMARK(bare_loopback)->Name("limit/udp_loopback")->ArgNames({"offloads", "payload"})->ArgsProduct(kCases);
BENCHMARK(idle_receive)->Name("udp_io/idle_receive")->ArgName("paths")->Arg(1)->Arg(8)->Arg(32);

}  // namespace
}  // namespace clustar::bench::micro
