#include "libfabric_shim/provider/core/wire.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace clustar::libfabric_shim::provider {
namespace {

std::vector<std::byte> written(const Header& header, std::size_t behind) {
  std::vector<std::byte> message(Header::kSize + behind);
  header.serialize_to(std::span(message).first<Header::kSize>());
  return message;
}

TEST(FiWire, AHeaderComesBackAsItWas) {
  const Header eager{.kind = Kind::kEager, .tagged = true, .tag = 0x0123456789abcdef, .length = 5};
  EXPECT_EQ(Header::parse(written(eager, 5)), eager);
  const Header offer{.kind = Kind::kRendezvous, .has_data = true, .slot = kSlots - 1, .length = 1 << 20, .data = 77};
  EXPECT_EQ(Header::parse(written(offer, 0)), offer);
}

TEST(FiWire, TheBytesAreBigEndianAndSigned) {
  const auto bytes = written({.kind = Kind::kEager, .tag = 1}, 0);
  EXPECT_EQ(bytes[0], std::byte{'C'});
  EXPECT_EQ(bytes[3], std::byte{'I'});
  EXPECT_EQ(bytes[4], std::byte{kWireVersion});
  EXPECT_EQ(bytes[15], std::byte{1});
}

TEST(FiWire, WhatContradictsItsLengthIsRefused) {
  EXPECT_FALSE(Header::parse(written({.kind = Kind::kEager, .length = 5}, 4)));
  EXPECT_FALSE(Header::parse(written({.kind = Kind::kEager, .length = 5}, 6)));
  EXPECT_FALSE(Header::parse(written({.kind = Kind::kRendezvous, .length = 5}, 5)));
  EXPECT_FALSE(Header::parse(written({.kind = Kind::kRendezvous, .length = 0}, 0)));
  EXPECT_FALSE(Header::parse(written({.kind = Kind::kRendezvous, .slot = kSlots, .length = 5}, 0)));
  EXPECT_FALSE(Header::parse(written({.kind = Kind::kRendezvous, .length = kMaxMessageBytes + 1}, 0)));
  EXPECT_FALSE(Header::parse(written({.kind = Kind::kHello, .length = 3}, 3)));
  EXPECT_FALSE(Header::parse(written({.kind = static_cast<Kind>(9), .length = 0}, 0)));
}

TEST(FiWire, AnotherVersionMagicOrFlagIsRefused) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{6}}) {
    auto bytes = written({.kind = Kind::kEager}, 0);
    bytes[at] ^= std::byte{0x80};
    EXPECT_FALSE(Header::parse(bytes)) << at;
  }
}

TEST(FiWire, NoBytesAreReadBeyondAMessage) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    // Exactly as long as the message, so that a sanitizer sees a byte too many.
    std::vector<std::byte> bytes(random() % 80);
    if (bytes.size() >= Header::kSize)
      Header{.kind = Kind::kEager}.serialize_to(std::span(bytes).first<Header::kSize>());
    for (int change = 0; change < 4 && !bytes.empty(); ++change) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto header = Header::parse(bytes);
    if (header && header->kind == Kind::kEager) {
      EXPECT_EQ(header->length, bytes.size() - Header::kSize);
    }
    (void)Hello::parse(bytes);
  }
}

TEST(FiWire, HelloAndAnswerComeBackAsTheyWere) {
  Hello hello{.endpoint = {.ipv6 = true, .port = 4711, .address = {}}};
  hello.endpoint.address[15] = std::byte{1};
  std::array<std::byte, Hello::kSize> bytes;
  hello.serialize_to(bytes);
  const auto back = Hello::parse(bytes);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->endpoint.ipv6);
  EXPECT_EQ(back->endpoint.port, 4711);
  EXPECT_EQ(back->endpoint.address, hello.endpoint.address);
  bytes[0] = std::byte{5};
  EXPECT_FALSE(Hello::parse(bytes));

  Answer answer{.eager_bytes = 16384, .handle = {}};
  answer.handle[119] = std::byte{9};
  std::array<std::byte, Answer::kSize> told;
  answer.serialize_to(told);
  const auto heard = Answer::parse(told);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->eager_bytes, 16384u);
  EXPECT_EQ(heard->handle, answer.handle);
  told[4] = std::byte{kWireVersion + 1};
  EXPECT_FALSE(Answer::parse(told));

  std::array<std::byte, Question::kSize> asked;
  Question::serialize_to(asked);
  EXPECT_TRUE(Question::parse(asked));
  asked[0] = std::byte{0};
  EXPECT_FALSE(Question::parse(asked));
}

}  // namespace
}  // namespace clustar::libfabric_shim::provider
