// What only packets over libfabric's datagrams promise.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "libfabric_shim/dgram/devices.h"
#include "libfabric_shim/dgram/ofi_backend.h"
#include "libfabric_shim/settings.h"
#include "tests/conformance/ofi_packets_under_test.h"
#include "tests/temp_path.h"
#include "transport/base/file_descriptor.h"
#include "transport/io/verbs/settings.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

const net::Endpoint kLoopback{false, 0, {std::byte{127}, {}, {}, std::byte{1}}};

std::unique_ptr<ofi::OfiIo> end_of(const ofi::OfiIoOptions& options = {}) {
  auto opened = open_ofi("udp", "127.0.0.1", options);
  EXPECT_TRUE(opened) << opened.error().message;
  return opened ? std::move(*opened) : nullptr;
}

// Until nothing comes any more; how many packets were given out.
std::size_t drain(ofi::OfiIo& io) {
  std::size_t count = 0;
  for (int quiet = 0; quiet < 20;) {
    io::RxPacket burst[32];
    const auto got = io.receive(burst);
    EXPECT_TRUE(got) << got.error().message;
    if (!got) break;
    io.release(std::span(burst).first(*got));
    count += *got;
    quiet = *got > 0 ? 0 : quiet + 1;
    if (*got == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return count;
}

// What somebody sends to an endpoint who is no end of ours.
class Outsider {
 public:
  explicit Outsider(const ofi::OfiIo& io) : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(io.address(0).size(), sizeof to_);
    std::memcpy(&to_, io.address(0).data(), sizeof to_);
  }
  void send(std::span<const std::byte> bytes) {
    const auto sent =
        ::sendto(socket_.fd(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to_), sizeof to_);
    EXPECT_EQ(sent, static_cast<ssize_t>(bytes.size()));
  }

 private:
  FileDescriptor socket_;
  sockaddr_in to_{};
};

TEST(OfiPackets, WhatIsCutOrForeignIsCountedAndTheEndGoesOn) {
  const auto one = end_of();
  const auto two = end_of();
  ASSERT_TRUE(one && two);
  const auto peer = two->add_peer(one->local_address(), kLoopback);
  ASSERT_TRUE(peer) << peer.error().message;
  Outsider outsider(*one);
  const std::size_t most = one->capabilities().max_packet + ofi::kDatagramFrame;
  outsider.send(std::vector<std::byte>(most + 1, std::byte{1}));
  outsider.send(std::vector<std::byte>(2 * most, std::byte{1}));
  EXPECT_EQ(drain(*one), 0u);
  EXPECT_EQ(one->counters().truncated, 2u);
  outsider.send(std::vector<std::byte>(3, std::byte{1}));     // shorter than a frame
  outsider.send(std::vector<std::byte>(most, std::byte{0}));  // without a header
  outsider.send({});
  EXPECT_EQ(drain(*one), 0u);
  EXPECT_EQ(one->counters().malformed, 3u);
  // Well made, but of an end that is no peer here.
  io::TxPacket packet;
  packet.peer = *peer;
  packet.header = header_of(8, 1);
  ASSERT_EQ(two->send(std::span(&packet, 1)).value(), 1u);
  EXPECT_EQ(drain(*one), 0u);
  EXPECT_EQ(one->counters().strangers, 1u);
  ASSERT_TRUE(one->add_peer(two->local_address(), kLoopback));
  ASSERT_EQ(two->send(std::span(&packet, 1)).value(), 1u);
  EXPECT_EQ(drain(*one), 1u);
  EXPECT_NE(one->describe().find("2 too long and cut"), std::string::npos) << one->describe();
}

TEST(OfiPackets, TheSmallerLimitOfBothEndsCounts) {
  const auto one = end_of();
  const auto two = end_of({.most_bytes = 500});
  ASSERT_TRUE(one && two);
  EXPECT_EQ(two->capabilities().max_packet, 490u);
  EXPECT_EQ(one->capabilities().max_packet, 1462u);
  const auto third = end_of();
  ASSERT_TRUE(third);
  const auto to_two = one->add_peer(two->local_address(), kLoopback);
  const auto to_third = one->add_peer(third->local_address(), kLoopback);
  ASSERT_TRUE(to_two && to_third);
  ASSERT_TRUE(two->add_peer(one->local_address(), kLoopback));
  ASSERT_TRUE(third->add_peer(one->local_address(), kLoopback));
  EXPECT_EQ(one->capabilities().max_packet, 1462u) << "of all peers";
  std::vector<std::byte> payload(1462 - 8);
  const auto memory = one->reg_mr({gdr::MemoryKind::kHost, payload.data(), payload.size()});
  ASSERT_TRUE(memory);
  const auto send = [&](io::PeerId peer, std::size_t bytes) {
    io::TxPacket packet;
    packet.peer = peer;
    packet.header = header_of(8, 1);
    packet.payload = {memory->get(), 0, bytes - 8};
    return one->send(std::span(&packet, 1));
  };
  const auto refused = send(*to_two, 491);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("the limit is 490, the peer's"), std::string::npos) << refused.error().message;
  EXPECT_EQ(send(*to_third, 1462).value(), 1u);
  EXPECT_EQ(send(*to_two, 490).value(), 1u);
  EXPECT_EQ(drain(*two), 1u);
  EXPECT_EQ(drain(*third), 1u);
}

TEST(OfiPackets, APeerThatLeavesTakesItsAddressesAlong) {
  const auto one = end_of();
  ASSERT_TRUE(one);
  for (int i = 0; i < 3; ++i) {
    const auto two = end_of();
    ASSERT_TRUE(two);
    ASSERT_TRUE(two->add_peer(one->local_address(), kLoopback));
    for (int again = 0; again < 2; ++again) {
      const auto peer = one->add_peer(two->local_address(), kLoopback);
      ASSERT_TRUE(peer);
      EXPECT_EQ(one->known_addresses(), one->capabilities().paths);
      io::TxPacket packet;
      packet.peer = *peer;
      packet.header = header_of(8, 1);
      ASSERT_EQ(one->send(std::span(&packet, 1)).value(), 1u);
      EXPECT_EQ(drain(*two), 1u);
      ASSERT_TRUE(one->remove_peer(*peer));
      EXPECT_EQ(one->known_addresses(), 0u);
    }
  }
}

TEST(OfiDevices, OnlyTheInterfaceOfTheGidThatIsUsedCounts) {
  const std::string sysfs = tests::temp_path("ofi_sysfs");
  const std::string folder = sysfs + "/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/0") << "eth0\n";
  std::ofstream(folder + "/1") << "eth0.7\n";
  EXPECT_EQ(ofi::interface_of_gid(sysfs, "mlx5_0", 0), "eth0");
  EXPECT_EQ(ofi::interface_of_gid(sysfs, "mlx5_0", 1), "eth0.7");
  EXPECT_EQ(ofi::interface_of_gid(sysfs, "mlx5_0", 2), "") << "there is none";
  std::filesystem::remove_all(sysfs);
}

TEST(OfiPackets, NobodyHasItSendToAThirdHost) {
  const auto one = end_of();
  const auto two = end_of();
  ASSERT_TRUE(one && two);
  const net::Endpoint another{false, 0, {std::byte{127}, {}, {}, std::byte{2}}};
  const auto refused = one->add_peer(two->local_address(), another);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRemote);
  ofi::OfiIoOptions options;
  options.apart = true;
  const auto apart = end_of(options);
  ASSERT_TRUE(apart);
  EXPECT_TRUE(apart->add_peer(two->local_address(), another)) << "control connections have a network of their own";
}

TEST(OfiPackets, EndsThatDifferSayInWhat) {
  const auto one = end_of();
  const auto two = end_of({.paths = 2});
  ASSERT_TRUE(one && two);
  const auto refused = one->add_peer(two->local_address(), kLoopback);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidUsage);
  auto address = ofi::EndAddress::parse(one->local_address());
  ASSERT_TRUE(address);
  address->provider = "verbs";
  const auto other = one->add_peer(address->serialize().value(), kLoopback);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("CLUSTAR_OFI_PROVIDER"), std::string::npos) << other.error().message;
  EXPECT_EQ(ofi::EndAddress::parse(one->local_address())->provider, "udp");
}

TEST(OfiPackets, ReceivesAreShortWhileTheCallerHoldsThemAndComeBack) {
  const ofi::OfiIoOptions few{.paths = 1, .receives = 16, .held = 16};
  const auto one = end_of(few);
  const auto two = end_of(few);
  ASSERT_TRUE(one && two);
  ASSERT_TRUE(one->add_peer(two->local_address(), kLoopback));
  const auto peer = two->add_peer(one->local_address(), kLoopback);
  ASSERT_TRUE(peer);
  io::TxPacket packet;
  packet.peer = *peer;
  packet.header = header_of(8, 1);
  const std::vector<io::TxPacket> packets(48, packet);
  ASSERT_EQ(two->send(packets).value(), 48u);
  std::vector<io::RxPacket> held(48);
  std::size_t count = 0;
  for (int i = 0; i < 100; ++i) count += one->receive(std::span(held).subspan(count)).value();
  EXPECT_EQ(count, 32u) << "all the slots that there are";
  EXPECT_GT(one->counters().slots_empty, 0u);
  one->release(std::span(held).first(count));
  EXPECT_EQ(drain(*one), 16u);
}

Config config_of(const std::string& provider) {
  Config config;
  config.edit<NetworkSettings>()->interfaces = "=lo";
  config.edit<OfiSettings>()->provider = provider;
  return config;
}

TEST(OfiBackend, SaysWhichProviderItTookAndWhyNoOther) {
  std::string said;
  const auto backend =
      ofi::OfiBackend::create(config_of(""), Log([&](LogLevel, const std::string& text) { said += text; }));
  ASSERT_TRUE(backend) << backend.error().message;
  EXPECT_NE(said.find("packets over libfabric's udp"), std::string::npos) << said;
  const auto devices = (*backend)->devices();
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ(devices->front().name, "lo");
  EXPECT_TRUE((*backend)->open(0));
}

TEST(OfiBackend, WhatCannotBeHadIsSaid) {
  const auto unknown = ofi::OfiBackend::create(config_of("tcp;ofi_rxm"), Log());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("there are"), std::string::npos) << unknown.error().message;
  Config nowhere = config_of("udp");
  nowhere.edit<NetworkSettings>()->interfaces = "=nothere";
  EXPECT_FALSE(ofi::OfiBackend::create(nowhere, Log()));
}

}  // namespace
}  // namespace clustar::transport::conformance
