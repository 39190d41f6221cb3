// UdpIo over cables of every kind: MTUs, DSCP and ECN in both address families, several addresses of one host.
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/conformance/udp_io_pair.h"
#include "tests/fabric/udp_cable.h"
#include "transport/base/file_descriptor.h"

namespace clustar::transport::io::udp {
namespace {

using tests::Carriage;
using tests::Wire;

UdpOptions at(const char* local) {
  UdpOptions options;
  options.local = local;
  options.paths = 2;
  return options;
}

struct End {
  std::unique_ptr<UdpIo> io;
  PeerId far = 0;
};

// Two that know each other, each on its host. Routes are asked for where the thread stands.
struct Ends {
  Ends() = default;
  Ends(const Wire& wire, const char* local, const char* remote) {
    wire.run_on(0, [&] { a.io = must_open(at(local)); });
    wire.run_on(1, [&] { b.io = must_open(at(remote)); });
    wire.run_on(0, [&] { a.far = a.io->add_peer(b.io->local()).value(); });
    wire.run_on(1, [&] { b.far = b.io->add_peer(a.io->local()).value(); });
  }
  End a;
  End b;
};

struct Source {
  explicit Source(UdpIo& io) : bytes(65536) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    mr = io.reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())).value();
  }
  TxPacket packet(PeerId peer, std::size_t whole) const {
    TxPacket packet;
    packet.peer = peer;
    packet.header = Header(40);
    packet.payload = {mr.get(), 0, whole - 40};
    return packet;
  }
  bool is(const std::vector<std::byte>& payload) const {
    return std::ranges::equal(payload, std::span(bytes).first(payload.size()));
  }
  std::vector<std::byte> bytes;
  std::unique_ptr<Mr> mr;
};

// Offers until all is taken, a bounded number of times.
void send_all(UdpIo& io, std::span<const TxPacket> packets) {
  for (int tries = 0; tries < 1000 && !packets.empty(); ++tries) {
    const auto taken = io.send(packets);
    ASSERT_TRUE(taken) << taken.error().message;
    packets = packets.subspan(*taken);
    if (!packets.empty()) io.wait(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(packets.empty());
}

// The largest packet crosses whole, alone and in joined messages, and one byte more is refused before it is sent.
void expect_limit(Ends& ends, std::size_t limit) {
  ASSERT_EQ(ends.a.io->capabilities().max_packet, limit);
  ASSERT_EQ(ends.b.io->capabilities().max_packet, limit);
  const Source source(*ends.a.io);
  send_all(*ends.a.io, std::vector<TxPacket>(20, source.packet(ends.a.far, limit)));
  const auto taken = take(*ends.b.io, 20, kNeighbourWait);
  ASSERT_EQ(taken.size(), 20u);
  for (const Taken& one : taken) {
    ASSERT_EQ(one.payload.size(), limit - 40);
    EXPECT_TRUE(source.is(one.payload));
  }
  EXPECT_EQ(ends.b.io->counters().kernel_drops, 0u);
  const TxPacket more = source.packet(ends.a.far, limit + 1);
  EXPECT_FALSE(ends.a.io->send(std::span(&more, 1)));
  EXPECT_EQ(ends.a.io->counters().mtu_changes, 0u);
}

TEST(UdpOverWires, EveryMtuIsFoundInBothFamiliesAndUsedToItsLastByte) {
  for (const int mtu : {1500, 9000, 65535}) {
    for (const Carriage carriage : {Carriage::kWhole, Carriage::kRejoined}) {
      SCOPED_TRACE(std::to_string(mtu) + " " + to_string(carriage));
      const auto wire = Wire::make(mtu, carriage);
      if (!wire) GTEST_SKIP() << wire.error().message;
      const std::size_t most = static_cast<std::size_t>(mtu) - kFrameBytes;
      Ends four(*wire, Wire::address(0), Wire::address(1));
      expect_limit(four, most - datagram_overhead(false));
      Ends six(*wire, Wire::address6(0), Wire::address6(1));
      expect_limit(six, most - datagram_overhead(true));
    }
  }
}

// 65,536: longer than an IP packet can be, so the packet is the limit and not the MTU.
TEST(UdpOverWires, LoopbackIsLimitedByThePacketNotByItsMtu) {
  for (const char* local : {"127.0.0.1", "::1"}) {
    SCOPED_TRACE(local);
    Ends ends;
    ends.a.io = must_open(at(local));
    ends.b.io = must_open(at(local));
    ends.a.far = ends.a.io->add_peer(ends.b.io->local()).value();
    ends.b.far = ends.b.io->add_peer(ends.a.io->local()).value();
    expect_limit(ends, most_udp_payload(ends.a.io->local().ip.ipv6) - kFrameBytes);
  }
}

TEST(UdpOverWires, ASmallerMtuOfOneEndIsTheLimitOfWhatItSends) {
  const auto wire = Wire::make(9000, Carriage::kWhole);
  if (!wire) GTEST_SKIP() << wire.error().message;
  wire->run_on(1, [] { ASSERT_TRUE(shell("ip link set wire mtu 1500")); });
  for (const bool ipv6 : {false, true}) {
    Ends ends(*wire, ipv6 ? Wire::address6(0) : Wire::address(0), ipv6 ? Wire::address6(1) : Wire::address(1));
    EXPECT_EQ(ends.a.io->capabilities().max_packet, 9000 - datagram_overhead(ipv6) - kFrameBytes);
    EXPECT_EQ(ends.b.io->capabilities().max_packet, 1500 - datagram_overhead(ipv6) - kFrameBytes);
  }
}

// Marks of neighbours that the receiving kernel could join: GRO must keep packets of different DSCP or ECN apart.
TEST(UdpOverWires, DscpAndEcnOfEveryPacketSurviveJoining) {
  for (const Carriage carriage : {Carriage::kWhole, Carriage::kRejoined, Carriage::kPackets}) {
    SCOPED_TRACE(to_string(carriage));
    const auto wire = Wire::make(1500, carriage);
    if (!wire) GTEST_SKIP() << wire.error().message;
    for (const bool ipv6 : {false, true}) {
      Ends ends(*wire, ipv6 ? Wire::address6(0) : Wire::address(0), ipv6 ? Wire::address6(1) : Wire::address(1));
      const Source source(*ends.a.io);
      std::vector<TxPacket> packets(128, source.packet(ends.a.far, 1000));
      for (std::size_t i = 0; i < packets.size(); ++i) {
        packets[i].traffic_class = static_cast<std::uint8_t>(i / 16);
        packets[i].ect = i % 16 < 8 ? i % 2 == 1 : i % 16 < 12;
        packets[i].header.bytes()[0] = static_cast<std::byte>(i);
      }
      send_all(*ends.a.io, packets);
      const auto taken = take(*ends.b.io, packets.size(), kNeighbourWait);
      ASSERT_EQ(taken.size(), packets.size());
      for (const Taken& one : taken) {
        const TxPacket& sent = packets[std::to_integer<std::size_t>(one.header[0])];
        EXPECT_EQ(one.traffic_class, sent.traffic_class);
        EXPECT_EQ(one.ecn, sent.ect ? Ecn::kEct0 : Ecn::kNotEct);
      }
    }
  }
}

// What a congested switch does, by a program of two instructions on the sending interface: ECT becomes CE, and Not-ECT
// stays. Nothing, with errno, where the kernel has no TCX (before 6.6) or does not allow it. The mark ends with it.
FileDescriptor mark_all(const char* interface) {
  // bpf_insn: opcode, two registers, offset, immediate. call bpf_skb_ecn_set_ce (97); r0 = TCX_NEXT (-1); exit.
  const std::array<bpf_insn, 3> program{bpf_insn{BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skb_ecn_set_ce},
                                        bpf_insn{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, -1},
                                        bpf_insn{BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  constexpr std::uint32_t kTcxEgress = 47;  // BPF_TCX_EGRESS of linux/bpf.h since 6.6
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_SCHED_CLS;
  load.insns = reinterpret_cast<std::uint64_t>(program.data());
  load.insn_cnt = program.size();
  load.license = reinterpret_cast<std::uint64_t>("GPL");
  const FileDescriptor loaded(static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load)));
  if (!loaded) return {};
  bpf_attr link{};
  link.link_create.prog_fd = static_cast<std::uint32_t>(loaded.fd());
  link.link_create.target_ifindex = ::if_nametoindex(interface);
  link.link_create.attach_type = kTcxEgress;
  return FileDescriptor(static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof link)));
}

TEST(UdpOverWires, AMarkOfTheNetworkIsSeenAsCe) {
  const auto wire = Wire::make(1500, Carriage::kRejoined);
  if (!wire) GTEST_SKIP() << wire.error().message;
  FileDescriptor marking;
  std::string why;
  wire->run_on(0, [&] {
    marking = mark_all("wire");
    if (!marking) why = describe_errno(errno);
  });
  if (!marking) GTEST_SKIP() << "needs a kernel of 6.6 or later that lets root load a BPF program: " << why;
  for (const bool ipv6 : {false, true}) {
    Ends ends(*wire, ipv6 ? Wire::address6(0) : Wire::address(0), ipv6 ? Wire::address6(1) : Wire::address(1));
    const Source source(*ends.a.io);
    for (const bool ect : {false, true}) {
      std::vector<TxPacket> packets(200, source.packet(ends.a.far, 1400));
      for (TxPacket& one : packets) one.ect = ect;
      send_all(*ends.a.io, packets);
      const auto taken = take(*ends.b.io, packets.size(), kNeighbourWait);
      ASSERT_EQ(taken.size(), packets.size());
      const auto marked = std::ranges::count(taken, Ecn::kCe, &Taken::ecn);
      EXPECT_EQ(marked, ect ? 200 : 0);
    }
  }
}

// One device per address of a host, all open at once, each with the MTU and the peers of its own.
TEST(UdpOverWires, SeveralAddressesOfOneHostDoNotMix) {
  const auto wire = Wire::make(1500, Carriage::kWhole);
  if (!wire) GTEST_SKIP() << wire.error().message;
  bool second = false;
  wire->run_on(0, [&] {
    second = shell(
        "ip addr add 10.78.0.11/24 dev wire && ip link add jumbo mtu 9000 type veth peer name jumbo-far mtu 9000 && "
        "ip addr add 10.79.0.1/24 dev jumbo && ip link set jumbo up && ip link set jumbo-far up");
  });
  ASSERT_TRUE(second);
  const std::array<const char*, 3> locals{"10.78.0.1", "10.78.0.11", "fd78::1"};
  std::vector<std::unique_ptr<UdpIo>> ends;
  std::vector<std::unique_ptr<UdpIo>> far;
  std::vector<std::vector<PeerId>> peers(3);
  std::unique_ptr<UdpIo> jumbo;
  wire->run_on(1, [&] {
    for (const char* remote : {"10.78.0.2", "10.78.0.2", "fd78::2"}) far.push_back(must_open(at(remote)));
  });
  wire->run_on(0, [&] {
    for (const char* local : locals) ends.push_back(must_open(at(local)));
    jumbo = must_open(at("jumbo"));
    for (std::size_t i = 0; i < 3; ++i) peers[0].push_back(ends[i]->add_peer(far[i]->local()).value());
  });
  EXPECT_EQ(jumbo->local().ip.to_string(), "10.79.0.1");
  EXPECT_EQ(jumbo->capabilities().max_packet, 9000u - 28 - 1);
  wire->run_on(1, [&] {
    for (std::size_t i = 0; i < 3; ++i) peers[1].push_back(far[i]->add_peer(ends[i]->local()).value());
  });
  for (std::size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(locals[i]);
    EXPECT_EQ(ends[i]->local().ip.to_string(), locals[i]);
    EXPECT_EQ(ends[i]->capabilities().max_packet, 1500 - datagram_overhead(i == 2) - kFrameBytes);
    for (const bool back : {false, true}) {
      UdpIo& from = back ? *far[i] : *ends[i];
      UdpIo& to = back ? *ends[i] : *far[i];
      const Source source(from);
      TxPacket packet = source.packet(peers[back ? 1 : 0][i], 1000);
      packet.header.bytes()[0] = static_cast<std::byte>(i);
      send_all(from, std::vector<TxPacket>(50, packet));
      const auto taken = take(to, 50, kNeighbourWait);
      ASSERT_EQ(taken.size(), 50u);
      for (const Taken& one : taken) {
        EXPECT_EQ(one.header[0], static_cast<std::byte>(i));
        EXPECT_EQ(one.peer, peers[back ? 0 : 1][i]);
      }
    }
  }
  for (const auto& all : {&ends, &far}) {
    for (const auto& one : *all) EXPECT_EQ(one->counters().strangers, 0u);
  }
}

}  // namespace
}  // namespace clustar::transport::io::udp
