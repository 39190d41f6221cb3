// Parity through waist 1, over UDP that loses: every byte comes, rebuilt or sent again, and the loss contract holds.
#include <gtest/gtest.h>

#include "mlt/fec/codec.h"
#include "tests/conformance/mlt_loss_bed.h"
#include "transport/crypto/crypto.h"

namespace clustar::transport::conformance {
namespace {

class MltParity : public MltLossBed {
 protected:
  void SetUp() override {
    if (const auto opened = mlt::fec::Codec::open(); !opened) GTEST_SKIP() << opened.error().message;
  }
  // On loopback, where no round trip is long.
  static Setup near(Setup setup = {}) {
    setup.adjust = [](mlt::Options& options) { options.parity_from = Duration(0); };
    return setup;
  }
  static std::uint64_t sent(const Transport& transport) {
    return count(transport.summary(), " packets of parity sent");
  }
  static std::uint64_t rebuilt(const Transport& transport) {
    return count(transport.summary(), " packets rebuilt by parity");
  }
};

TEST_F(MltParity, WhatIsLostIsRebuilt) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    SCOPED_TRACE(engine);
    const auto from = create(near({.engine = engine, .wrap = faults("loss=0.01")}));
    const auto to = create(near({.engine = engine}));
    std::vector<Connection> channels;
    for (int i = 0; i < 2; ++i) channels.push_back(connect(*from, *to));
    // Of whole segments and not, of a block and of many. Shorter sends are done before they came, and `inline` then
    // waits.
    for (const std::size_t size : {kMiB, kMiB - 1, kMiB / 2 + 4711, 64 * 1352ul, 20'001ul, 5000ul}) {
      const Came came = run(channels, 32, size, {});
      EXPECT_EQ(came.missing, 0u) << size;
      EXPECT_EQ(came.different, 0u) << size;
    }
    EXPECT_GT(sent(*from), 0u);
    EXPECT_GT(rebuilt(*to), 0u);
    EXPECT_EQ(rebuilt(*from), 0u);
  }
}

TEST_F(MltParity, ItIsSealedAsData) {
  if (const auto opened = crypto::Crypto::open(); !opened) GTEST_SKIP() << opened.error().message;
  for (const char* mode : {"authenticate", "encrypt"}) {
    SCOPED_TRACE(mode);
    const auto from =
        create(near({.wrap = faults("loss=0.01"), .psk_mode = mode, .secret = "the secret of the parity tests"}));
    const auto to = create(near({.psk_mode = mode, .secret = "the secret of the parity tests"}));
    std::vector<Connection> channels;
    for (int i = 0; i < 2; ++i) channels.push_back(connect(*from, *to));
    const Came came = run(channels, 64, kMiB, {});
    EXPECT_EQ(came.different, 0u);
    EXPECT_EQ(came.missing, 0u);
    EXPECT_GT(rebuilt(*to), 0u);
    EXPECT_EQ(count(to->summary(), " unauthenticated dropped"), 0u);
  }
}

TEST_F(MltParity, WhatIsRebuiltIsNotCharged) {
  const auto from = create(near({.wrap = faults("loss=0.05")}));
  const auto to = create(near());
  std::vector<Connection> channels;
  for (int i = 0; i < 2; ++i) channels.push_back(connect(*from, *to, kOptedIn));
  const Came came = run(channels, 64, kMiB, {.loss = one_percent_of(64 * kMiB)});
  EXPECT_EQ(came.not_zero, 0u);
  EXPECT_EQ(came.different, 0u);
  EXPECT_LE(came.missing * 1'000'000, 64 * kMiB * kOnePercent);
  EXPECT_EQ(count(to->summary(), " contribution-bytes charged"), came.missing);
  EXPECT_GT(rebuilt(*to), 0u);
}

// A message that is longer than its receive is cut, and nothing behind the receive is written.
TEST_F(MltParity, AReceiveThatIsTooShortIsFilledAndNoMore) {
  const auto from = create(near({.wrap = faults("loss=0.02")}));
  const auto to = create(near());
  Connection channel = connect(*from, *to);
  constexpr std::size_t kShorter = kMiB - 100'000;
  for (unsigned seed = 1; seed <= 32; ++seed) {
    SendBuffer out(*channel.send, kMiB, seed);
    RecvBuffer in(*channel.recv, kMiB);
    const auto untouched = in.bytes;
    finish({must_recv(*channel.recv, {{in.mr.get(), 0, kShorter, 0}}), must_send(*channel.send, *out.mr, 0, kMiB, 0)});
    EXPECT_TRUE(std::equal(in.bytes.begin(), in.bytes.begin() + kShorter, out.bytes.begin())) << seed;
    EXPECT_TRUE(std::equal(in.bytes.begin() + kShorter, in.bytes.end(), untouched.begin() + kShorter)) << seed;
  }
  EXPECT_GT(sent(*from), 0u);
  EXPECT_EQ(rebuilt(*to), 0u);
}

TEST_F(MltParity, ItTakesBothEnds) {
  for (const bool sender : {true, false}) {
    Setup without = near();
    without.parity = "off";
    Setup lossy = sender ? without : near();
    lossy.wrap = faults("loss=0.02");
    const auto from = create(lossy);
    const auto to = create(sender ? near() : without);
    std::vector<Connection> channels;
    channels.push_back(connect(*from, *to));
    const Came came = run(channels, 16, kMiB, {});
    EXPECT_EQ(came.different, 0u);
    EXPECT_EQ(sent(*from), 0u);
    EXPECT_EQ(rebuilt(*to), 0u);
  }
}

TEST_F(MltParity, OnAShortRoundTripOrACleanLineThereIsNone) {
  const auto clean = create(near());
  const auto lossy = create({.wrap = faults("loss=0.02")});
  const auto to = create(near());
  for (Transport* from : {clean.get(), lossy.get()}) {
    std::vector<Connection> channels;
    channels.push_back(connect(*from, *to));
    const Came came = run(channels, 16, kMiB, {});
    EXPECT_EQ(came.different, 0u);
  }
  EXPECT_EQ(sent(*lossy), 0u);
  // The kernel may drop what it has no room for.
  EXPECT_TRUE(sent(*clean) == 0 || count(to->summary(), " dropped by the kernel") > 0);
}

}  // namespace
}  // namespace clustar::transport::conformance
