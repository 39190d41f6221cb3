#include "coflow/control/core/session.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::coflow::control {
namespace {

// A keyed hash that is enough to tell keys and data apart here.
std::optional<Digest32> toy_hmac(std::span<const std::byte> key, std::span<const std::byte> data) {
  std::uint64_t state = kGoldenGamma;
  for (const std::byte byte : key) state = mix64(state + std::to_integer<std::uint64_t>(byte) + 1);
  for (const std::byte byte : data) state = mix64(state + std::to_integer<std::uint64_t>(byte) + 257);
  Digest32 digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    state = mix64(state + i);
    digest[i] = static_cast<std::byte>(state);
  }
  return digest;
}

const std::vector<std::byte> kKey(16, std::byte{7}), kOther(16, std::byte{8});
SessionKey key(const std::vector<std::byte>& bytes = kKey) { return {toy_hmac, bytes}; }

struct Pair {
  explicit Pair(SessionKey a = key(), SessionKey c = key())
      : agent(Session::Side::kAgent, std::move(a), Nonce16{std::byte{1}}),
        coordinator(Session::Side::kCoordinator, std::move(c), Nonce16{std::byte{2}}) {}
  // In pieces of so many bytes.
  bool carry(std::size_t piece = 1000) {
    for (bool more = true; more;) {
      more = carry(agent, coordinator, piece);
      more = carry(coordinator, agent, piece) || more;
    }
    return !agent.failed() && !coordinator.failed();
  }
  static bool carry(Session& from, Session& to, std::size_t piece) {
    const std::vector<std::byte> bytes(from.to_send().begin(), from.to_send().end());
    from.sent(bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      (void)to.on_bytes(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    return !bytes.empty();
  }
  Session agent, coordinator;
};

TEST(ControlSession, CarriesMessagesBothWaysInPiecesOfAnySize) {
  for (const bool keyed : {true, false}) {
    for (const std::size_t piece : {1u, 2u, 7u, 1000u}) {
      Pair pair(keyed ? key() : SessionKey{}, keyed ? key() : SessionKey{});
      pair.agent.send(Hello{});
      pair.agent.send(Report{});
      ASSERT_TRUE(pair.carry(piece));
      ASSERT_TRUE(pair.coordinator.open() && pair.agent.open());
      pair.coordinator.send(Welcome{});
      ASSERT_TRUE(pair.carry(piece));
      EXPECT_EQ(pair.coordinator.next(), std::optional<Message>(Hello{}));
      EXPECT_EQ(pair.coordinator.next(), std::optional<Message>(Report{}));
      EXPECT_EQ(pair.coordinator.next(), std::nullopt);
      EXPECT_EQ(pair.agent.next(), std::optional<Message>(Welcome{}));
    }
  }
}

TEST(ControlSession, AWrongKeyIsNamedOnBothSides) {
  Pair pair(key(), key(kOther));
  pair.agent.send(Hello{});
  EXPECT_FALSE(pair.carry());
  EXPECT_TRUE(pair.agent.wrong_key());
  EXPECT_EQ(pair.agent.failure(), "it does not know the key");
}

TEST(ControlSession, AStrangersHelloIsNotHeard) {
  Pair pair;
  // It knows the protocol, but not the key.
  Session stranger(Session::Side::kAgent, {[](auto, auto) { return Digest32{}; }, kOther}, Nonce16{});
  Pair::carry(stranger, pair.coordinator, 1000);
  std::vector<std::byte> frame = serialize(Hello{});
  std::vector<std::byte> bytes{std::byte{0}, std::byte{0}, std::byte{0}, static_cast<std::byte>(frame.size())};
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  bytes.resize(bytes.size() + Session::kTag);
  EXPECT_FALSE(pair.coordinator.on_bytes(bytes));
  EXPECT_TRUE(pair.coordinator.wrong_key());
  EXPECT_FALSE(pair.coordinator.next());
}

TEST(ControlSession, KeyedAndUnkeyedSayWhatToSet) {
  for (const bool agents : {true, false}) {
    Pair pair(agents ? key() : SessionKey{}, agents ? SessionKey{} : key());
    EXPECT_FALSE(pair.carry());
    EXPECT_NE(pair.coordinator.failure().find("CLUSTAR_COORDINATOR_KEY_FILE"), std::string::npos);
    EXPECT_NE(pair.agent.failure().find("CLUSTAR_COORDINATOR_KEY_FILE"), std::string::npos);
    EXPECT_TRUE(pair.coordinator.wrong_key());
    EXPECT_TRUE(pair.agent.wrong_key());
  }
}

TEST(ControlSession, AReaderThatAlwaysLeavesSomethingMakesItKeepLittle) {
  Pair pair(SessionKey{}, SessionKey{});
  pair.agent.send(Hello{});
  ASSERT_TRUE(pair.carry());
  const std::size_t one = serialize(Welcome{}).size() + 4;
  pair.coordinator.send(Welcome{});
  for (int i = 0; i < 100'000; ++i) {
    pair.coordinator.send(Welcome{});
    pair.coordinator.sent(one);
    ASSERT_EQ(pair.coordinator.to_send().size(), one);
    ASSERT_LT(pair.coordinator.kept(), 16 * one);
  }
}

TEST(ControlSession, AChangedOrRepeatedMessageEndsIt) {
  for (const bool repeat : {true, false}) {
    Pair pair;
    pair.agent.send(Hello{});
    ASSERT_TRUE(pair.carry());
    pair.agent.send(Report{});
    std::vector<std::byte> bytes(pair.agent.to_send().begin(), pair.agent.to_send().end());
    if (repeat) {
      ASSERT_TRUE(pair.coordinator.on_bytes(bytes));
    } else {
      bytes[5] ^= std::byte{1};
    }
    EXPECT_FALSE(pair.coordinator.on_bytes(bytes));
    EXPECT_EQ(pair.coordinator.failure(), "a message that was changed on its way");
  }
}

TEST(ControlSession, AnotherVersionIsNamed) {
  Pair pair(SessionKey{}, SessionKey{});
  std::vector<std::byte> opening(pair.agent.to_send().begin(), pair.agent.to_send().end());
  opening[5] = std::byte{99};
  EXPECT_FALSE(pair.coordinator.on_bytes(opening));
  EXPECT_NE(pair.coordinator.failure().find("version 99"), std::string::npos) << pair.coordinator.failure();
}

TEST(ControlSession, AStrangerMakesItKeepLittle) {
  Pair pair(SessionKey{}, SessionKey{});
  const std::vector<std::byte> opening(pair.agent.to_send().begin(), pair.agent.to_send().end());
  ASSERT_TRUE(pair.coordinator.on_bytes(opening));
  const std::vector<std::byte> claim{std::byte{0}, std::byte{1}, std::byte{0}, std::byte{0}};
  EXPECT_FALSE(pair.coordinator.on_bytes(claim));
  EXPECT_NE(pair.coordinator.failure().find("65536"), std::string::npos) << pair.coordinator.failure();
}

TEST(ControlSession, WhateverComesIsAnErrorAtMost) {
  Rng rng(5);
  for (int run = 0; run < 3000; ++run) {
    Pair pair(rng.below(2) == 0 ? key() : SessionKey{}, rng.below(2) == 0 ? key() : SessionKey{});
    pair.agent.send(Hello{});
    if (rng.below(2) == 0) (void)pair.carry();
    std::vector<std::byte> bytes(pair.agent.to_send().begin(), pair.agent.to_send().end());
    for (std::uint64_t more = rng.below(300); more-- > 0;) bytes.push_back(std::byte{0});
    for (std::uint64_t i = rng.below(40); i-- > 0 && !bytes.empty();) {
      bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.next());
    }
    (void)pair.coordinator.on_bytes(bytes);
    (void)pair.agent.on_bytes(bytes);
  }
}

}  // namespace
}  // namespace clustar::coflow::control
