#include "mlt/driver/seal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "mlt/core/replay_window.h"
#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

// The definition: seen, or too far below the newest.
class NaiveWindow {
 public:
  bool seen(std::uint64_t counter) const {
    if (seen_.empty()) return false;
    return seen_.contains(counter) || *seen_.rbegin() + 1 > counter + ReplayWindow::kBits;
  }
  void mark(std::uint64_t counter) { seen_.insert(counter); }

 private:
  std::set<std::uint64_t> seen_;
};

TEST(ReplayWindow, AgreesWithASetWhateverComes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    ReplayWindow window;
    NaiveWindow naive;
    std::uint64_t newest = rng.below(100);
    for (int i = 0; i < 5000; ++i) {
      const std::uint64_t back = rng.below(rng.below(4) == 0 ? 3 * ReplayWindow::kBits : 300);
      std::uint64_t counter = back > newest ? 0 : newest - back;
      if (rng.below(2) == 0) counter = newest + rng.below(i % 200 == 0 ? 3 * ReplayWindow::kBits : 70);
      ASSERT_EQ(window.seen(counter), naive.seen(counter)) << "seed " << seed << " counter " << counter;
      if (rng.below(3) == 0) continue;  // not genuine: not marked
      window.mark(counter);
      naive.mark(counter);
      newest = std::max(newest, counter);
      for (const std::uint64_t edge : {newest + 1 - std::min(newest + 1, ReplayWindow::kBits), newest, newest + 1}) {
        ASSERT_EQ(window.seen(edge), naive.seen(edge)) << "seed " << seed << " edge " << edge;
      }
    }
  }
}

TEST(ReplayWindow, HoldsAtLeast4096) {
  ReplayWindow window;
  window.mark(10000);
  EXPECT_FALSE(window.seen(10000 - 4096));
  EXPECT_TRUE(window.seen(10000));
  EXPECT_FALSE(window.seen(10001));
  EXPECT_TRUE(window.seen(10000 - ReplayWindow::kBits));
}

}  // namespace

namespace driver {
namespace {

using Opened = Seal::Opened;

class SealTest : public ::testing::TestWithParam<bool> {  // whether payload is encrypted
 protected:
  struct Sealed {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
  };
  void SetUp() override {
    auto opened = crypto::Crypto::open();
    if (!opened) GTEST_SKIP() << opened.error().message;
    crypto_ = std::move(*opened);
  }
  static std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
    Rng rng(seed);
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next());
    return bytes;
  }
  Sealed seal(Seal& from, std::uint8_t path, std::size_t payload = 1000, std::uint64_t seed = 1) {
    Sealed out{noise(40 + kSealBytes, seed), noise(payload, seed + 1)};
    std::vector<std::byte> cipher(payload);
    EXPECT_TRUE(from.seal(path, out.header, out.payload, GetParam() ? cipher.data() : nullptr));
    if (GetParam()) out.payload = cipher;
    return out;
  }
  Opened open(Seal& to, std::uint8_t path, const Sealed& packet, std::vector<std::byte>* plain = nullptr) {
    std::vector<std::byte> out(packet.payload.size());
    const Opened opened = to.open(path, packet.header, packet.payload, GetParam() ? out.data() : nullptr);
    if (plain != nullptr) *plain = GetParam() ? out : packet.payload;
    return opened;
  }
  Seal sender(std::uint64_t first = 0, unsigned key_bits = Seal::kKeyBits) {
    return {*crypto_, session_, Seal::Side::kSender, 4, first, key_bits};
  }
  Seal receiver(std::uint64_t first = 0, unsigned key_bits = Seal::kKeyBits) {
    return {*crypto_, session_, Seal::Side::kReceiver, 4, first, key_bits};
  }

  std::unique_ptr<crypto::Crypto> crypto_;
  Session session_{{std::byte{1}, std::byte{2}}};
};

TEST_P(SealTest, WhatIsSealedIsOpenedOnceInAnyOrder) {
  Seal from = sender();
  Seal to = receiver();
  std::vector<Sealed> packets;
  for (std::size_t i = 0; i < 100; ++i) packets.push_back(seal(from, 2, i * 7, i));
  for (std::size_t i = 100; i-- > 0;) {
    std::vector<std::byte> plain;
    ASSERT_EQ(open(to, 2, packets[i], &plain), Opened::kGenuine);
    EXPECT_EQ(plain, noise(i * 7, i + 1));
    EXPECT_EQ(open(to, 2, packets[i]), Opened::kReplayed);
  }
  EXPECT_EQ(packets[50].payload == noise(350, 51), !GetParam()) << "what is encrypted cannot be read";
}

TEST_P(SealTest, EveryByteCounts) {
  Seal from = sender();
  Seal to = receiver();
  const Sealed good = seal(from, 0, 65);
  for (std::size_t i = 0; i < good.header.size() + good.payload.size(); ++i) {
    Sealed bad = good;
    (i < good.header.size() ? bad.header[i] : bad.payload[i - good.header.size()]) ^= std::byte{0x10};
    EXPECT_EQ(open(to, 0, bad), Opened::kForged) << i;
  }
  Sealed shorter = good;
  shorter.payload.pop_back();
  EXPECT_EQ(open(to, 0, shorter), Opened::kForged);
  for (std::size_t size = 0; size < good.header.size(); ++size) {
    EXPECT_EQ(open(to, 0, {{good.header.begin(), good.header.begin() + static_cast<std::ptrdiff_t>(size)}, {}}),
              Opened::kForged);
  }
  EXPECT_EQ(open(to, 0, good), Opened::kGenuine) << "after all that";
}

TEST_P(SealTest, APacketBelongsToItsPathDirectionAndSession) {
  Seal from = sender();
  Seal to = receiver();
  const Sealed packet = seal(from, 1);
  for (const std::uint8_t path : {0, 2, 3, 4, 31, 32, 33, 255}) EXPECT_EQ(open(to, path, packet), Opened::kForged);
  EXPECT_EQ(open(from, 1, packet), Opened::kForged) << "sent back to its sender";
  Session other = session_;
  other.key[31] = std::byte{1};
  Seal stale(*crypto_, other, Seal::Side::kReceiver, 4);
  EXPECT_EQ(open(stale, 1, packet), Opened::kForged) << "a connection that is over";
  EXPECT_EQ(open(to, 1, packet), Opened::kGenuine);
  const Sealed words = seal(from, Seal::kControlPath, 0);
  EXPECT_EQ(open(to, 3, words), Opened::kForged);
  EXPECT_EQ(open(to, Seal::kControlPath, words), Opened::kGenuine);
}

TEST_P(SealTest, KeysChangeOnTheWayAndLatePacketsStillComeIn) {
  Seal from = sender(0, 4);
  Seal to = receiver(0, 4);
  std::vector<Sealed> packets;
  for (std::size_t i = 0; i < 200; ++i) packets.push_back(seal(from, 0, 20, i));
  for (std::size_t i = 0; i < 200; i += 2) {  // each pair in the wrong order, some across two keys
    const std::size_t later = (i + 15) % 16 == 0 ? i : i + 1;
    ASSERT_EQ(open(to, 0, packets[later]), Opened::kGenuine) << later;
    ASSERT_EQ(open(to, 0, packets[later == i ? i + 1 : i]), Opened::kGenuine) << i;
  }
  for (const Sealed& packet : packets) EXPECT_EQ(open(to, 0, packet), Opened::kReplayed);
  Seal fresh = receiver(0, 4);
  EXPECT_EQ(open(fresh, 0, packets[20]), Opened::kGenuine) << "one key ahead: the first ones were lost";
  EXPECT_EQ(open(fresh, 0, packets[3]), Opened::kGenuine) << "late, by the key before";
  EXPECT_EQ(open(fresh, 0, packets[60]), Opened::kForged) << "no sender is that far ahead";
}

TEST_P(SealTest, TheCounterEndsBeforeItWraps) {
  Seal from = sender(Seal::kMaxCounter - 2);
  Seal to = receiver(Seal::kMaxCounter - 2);
  EXPECT_EQ(open(to, 0, seal(from, 0)), Opened::kGenuine);
  EXPECT_EQ(open(to, 0, seal(from, 0)), Opened::kGenuine);
  std::vector<std::byte> header(40 + kSealBytes);
  EXPECT_FALSE(from.seal(0, header, {}, nullptr));
  EXPECT_FALSE(from.seal(0, header, {}, nullptr));
  EXPECT_TRUE(from.seal(1, header, {}, nullptr)) << "another path has its own";
}

TEST_P(SealTest, ForgeriesDoNotMoveTheWindow) {
  Seal from = sender();
  Seal to = receiver();
  Sealed ahead = seal(from, 0);
  ahead.header[40 + 5] = std::byte{0x01};  // a counter of 2^16 and more, of the same key
  EXPECT_EQ(open(to, 0, ahead), Opened::kForged);
  EXPECT_EQ(open(to, 0, seal(from, 0)), Opened::kGenuine);
}

INSTANTIATE_TEST_SUITE_P(Modes, SealTest, ::testing::Bool(), [](const auto& mode) {
  return mode.param ? std::string("Encrypts") : std::string("Authenticates");
});

}  // namespace
}  // namespace driver
}  // namespace clustar::mlt
