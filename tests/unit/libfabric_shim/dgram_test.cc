// Choice, wire format and peers of packets over libfabric's datagrams; needs no libfabric.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "libfabric_shim/dgram/choice.h"
#include "libfabric_shim/dgram/peers.h"
#include "libfabric_shim/dgram/pressure.h"
#include "libfabric_shim/dgram/wire.h"

namespace clustar::transport::ofi {
namespace {

using Names = std::vector<std::string>;

TEST(DatagramChoice, RdmaNicsGoBeforeKernelUdp) {
  const auto choice = choose_datagrams(Names{"udp", "verbs", "sockets"}, "", "");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->provider, "verbs");
  EXPECT_EQ(choice->refused,
            (Names{"udp: comes after verbs", "sockets: is deprecated, and moves datagrams over TCP connections"}));
  EXPECT_EQ(choose_datagrams(Names{"udp", "sockets"}, "", "")->provider, "udp");
}

TEST(DatagramChoice, ANameTakesThatOneOrSaysWhatThereIs) {
  EXPECT_EQ(choose_datagrams(Names{"udp", "verbs"}, "udp", "")->provider, "udp");
  const auto missing = choose_datagrams(Names{"udp", "sockets"}, "verbs", "");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(missing.error().message.find("there are udp, sockets"), std::string::npos) << missing.error().message;
  const auto nothing = choose_datagrams(Names{"sockets"}, "", "");
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kUnavailable);
}

TEST(DatagramChoice, ForbiddenNicsAreNotTaken) {
  const auto choice = choose_datagrams(Names{"verbs", "udp"}, "", "NCCL_IB_DISABLE");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->provider, "udp");
  EXPECT_EQ(choice->refused, Names{"verbs: NCCL_IB_DISABLE forbids RDMA NICs"});
  EXPECT_FALSE(choose_datagrams(Names{"verbs", "udp"}, "verbs", "NCCL_IB_DISABLE"));
}

TEST(DatagramWire, FramesComeBackAsTheyWent) {
  std::vector<std::byte> bytes(kDatagramFrame + 20 + 7, std::byte{9});
  write_frame(bytes, 0x0123456789abcdef, 20, 5);
  const auto frame = parse_frame(bytes);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->key, 0x0123456789abcdefu);
  EXPECT_EQ(frame->traffic_class, 5);
  EXPECT_EQ(frame->header.size(), 20u);
  EXPECT_EQ(frame->payload.size(), 7u);
  EXPECT_EQ(frame->header.data(), bytes.data() + kDatagramFrame);
}

TEST(DatagramWire, DamagedFramesAreNone) {
  std::vector<std::byte> bytes(kDatagramFrame + 20);
  const auto parses = [&](std::size_t header, std::uint8_t traffic_class, std::size_t length) {
    write_frame(bytes, 1, header, traffic_class);
    return parse_frame(std::span(bytes).first(length)).has_value();
  };
  EXPECT_TRUE(parses(20, 7, bytes.size()));
  EXPECT_FALSE(parses(20, 8, bytes.size())) << "no such class";
  EXPECT_FALSE(parses(0, 0, bytes.size())) << "no header";
  EXPECT_FALSE(parses(21, 0, bytes.size())) << "a header that is not there";
  for (std::size_t length = 0; length < kDatagramFrame + 20; ++length) EXPECT_FALSE(parses(20, 0, length)) << length;
}

EndAddress address_of(std::size_t paths, std::size_t length) {
  EndAddress address{"verbs", 0xfedcba9876543211, 4086, {}};
  for (std::size_t k = 0; k < paths; ++k) {
    std::vector<std::byte> path(length, std::byte{0x5a});
    path[length / 2] = static_cast<std::byte>(k);
    path[length / 2 + 1] = static_cast<std::byte>(7 * k + 1);
    address.paths.push_back(std::move(path));
  }
  return address;
}

// As many paths of the longest addresses, of InfiniBand and IPv6, as an end may have.
TEST(DatagramWire, AddressesComeBackAsTheyWent) {
  for (const std::size_t paths : {std::size_t{1}, std::size_t{8}, kMostPaths}) {
    for (const std::size_t length : {std::size_t{16}, std::size_t{28}}) {
      const EndAddress sent = address_of(paths, length);
      const auto blob = sent.serialize();
      ASSERT_TRUE(blob) << blob.error().message;
      const auto back = EndAddress::parse(*blob);
      ASSERT_TRUE(back);
      EXPECT_EQ(back->provider, sent.provider);
      EXPECT_EQ(back->key, sent.key);
      EXPECT_EQ(back->max_packet, sent.max_packet);
      EXPECT_EQ(back->paths, sent.paths);
    }
  }
  EXPECT_TRUE(address_of(8, 32).serialize());
  EXPECT_FALSE(address_of(kMostPaths, 64).serialize());
}

TEST(DatagramWire, DamagedAddressesAreRefusedAndNeverReadBeyondTheirEnd) {
  const auto good = address_of(8, 32).serialize();
  ASSERT_TRUE(good);
  const std::vector<std::byte> whole(good->bytes().begin(), good->bytes().end());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_FALSE(EndAddress::parse(*io::AddressBlob::of(cut))) << length;
  }
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> changed = whole;
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<std::byte>(random());
    const auto parsed = EndAddress::parse(*io::AddressBlob::of(changed));
    if (parsed) {
      EXPECT_LE(parsed->paths.size(), kMostPaths);
    }
  }
}

TEST(Pressure, WhoOffersNothingMoreSleepsAgain) {
  Pressure pressure;
  EXPECT_EQ(pressure.sleep(), Duration::max());
  for (int turn = 0; turn < 100; ++turn) {
    pressure.offered(false);
    EXPECT_EQ(pressure.sleep(), Pressure::kPause);
    EXPECT_EQ(pressure.sleep(), Pressure::kPause) << "asked twice for one sleep";
  }
  int pauses = 0;
  while (pauses < 100 && pressure.sleep() == Pressure::kPause) ++pauses;
  EXPECT_LT(pauses, 10) << "the connection closed";
  pressure.offered(false);
  EXPECT_EQ(pressure.sleep(), Pressure::kPause);
  pressure.offered(true);
  EXPECT_EQ(pressure.sleep(), Duration::max());
}

TEST(DatagramPeers, ANumberThatWasGivenBackIsNobodysAgain) {
  Peers peers;
  const auto first = peers.add(11, {{1, 2}, 100});
  ASSERT_TRUE(first);
  EXPECT_FALSE(peers.add(11, {{3, 4}, 100})) << "a peer already";
  EXPECT_EQ(peers.sender(11), *first);
  EXPECT_FALSE(peers.sender(12));
  EXPECT_EQ(peers.find(*first)->paths.at(1), 2u);
  EXPECT_TRUE(peers.remove(*first));
  EXPECT_FALSE(peers.remove(*first));
  EXPECT_FALSE(peers.sender(11)) << "nor by what was found last";
  const auto second = peers.add(13, {{5, 6}, 100});
  ASSERT_TRUE(second);
  EXPECT_NE(*second, *first);
  EXPECT_EQ(peers.find(*first), nullptr);
  EXPECT_EQ(peers.size(), 1u);
}

}  // namespace
}  // namespace clustar::transport::ofi
