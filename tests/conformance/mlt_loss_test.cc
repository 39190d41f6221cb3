// The loss contract through waist 1: who may lose, how much, and what the receiver is told.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "mlt/core/ledger.h"
#include "mlt/core/wire.h"
#include "tests/conformance/mlt_loss_bed.h"
#include "transport/crypto/crypto.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::HasSubstr;

class MltLoss : public MltLossBed {
 protected:
  // No loss but that of the kernel's own buffers, which a test cannot forbid.
  static std::uint64_t dropped(const Transport& transport) {
    return count(transport.summary(), " dropped by the kernel");
  }
  static std::uint64_t eligible(const Transport& transport) { return count(transport.summary(), " eligible"); }
};

void within_the_contract(const Came& came, Transport& receiver, std::uint64_t bytes) {
  EXPECT_GT(came.missing, 0u);
  EXPECT_GT(came.ranges, 0u);
  EXPECT_EQ(came.not_zero, 0u) << "what is missing reads as zero";
  EXPECT_EQ(came.different, 0u) << "what is not missing is there";
  EXPECT_LE(came.missing * 1'000'000, bytes * kOnePercent);
  const std::string summary = receiver.summary();
  const LossTerms loss = one_percent_of(bytes);
  const mlt::Terms terms{loss.collective_bytes, loss.ranks, loss.edges, loss.tolerance_ppm};
  EXPECT_EQ(count(summary, " eligible"), bytes);
  EXPECT_EQ(count(summary, " bytes missing"), came.missing);
  ChannelTraffic traffic;
  for (const DeviceCounters& device : receiver.counters().devices) traffic += device.total;
  EXPECT_EQ(traffic.missing_bytes, came.missing);
  EXPECT_EQ(traffic.received.bytes, bytes - came.missing) << "what came";
  EXPECT_EQ(count(summary, " contribution-bytes charged"), came.missing) << "of stage 0";
  EXPECT_LE(count(summary, " contribution-bytes charged"), mlt::loss_bound(terms));
}

std::vector<Connection> two_channels(Transport& from, Transport& to) {
  std::vector<Connection> channels;
  for (int i = 0; i < 2; ++i) channels.push_back(connect(from, to, kOptedIn));
  return channels;
}

TEST_F(MltLoss, ACollectiveLosesWithinItsBudgetOverUdp) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    SCOPED_TRACE(engine);
    const auto from = create({.engine = engine, .wrap = faults("loss=0.02")});
    const auto to = create({.engine = engine});
    auto channels = two_channels(*from, *to);
    Waiting waiting(*from, *to);
    const Came came = run(channels, 32, kMiB, {.loss = one_percent_of(32 * kMiB)}, &waiting);
    within_the_contract(came, *to, 32 * kMiB);
    EXPECT_GT(count(from->summary(), " packets missing at peers"), 0u);
  }
}

TEST_F(MltLoss, ACollectiveLosesWithinItsBudgetOverTheSimulator) {
  const auto all = mlt_elsewhere_under_test();
  const auto poor = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.name == "mlt_sim_poor"; });
  ASSERT_NE(poor, all.end());
  const auto from = std::move(poor->create(Log{}).value());
  const auto to = std::move(poor->create(Log{}).value());
  auto channels = two_channels(*from, *to);
  Waiting waiting(*from, *to);
  const Came came = run(channels, 16, kMiB / 2, {.loss = one_percent_of(8 * kMiB)}, &waiting);
  within_the_contract(came, *to, 8 * kMiB);
}

TEST_F(MltLoss, ItWorksWithAPreSharedKey) {
  if (const auto opened = crypto::Crypto::open(); !opened) GTEST_SKIP() << opened.error().message;
  for (const char* mode : {"authenticate", "encrypt"}) {
    SCOPED_TRACE(mode);
    const auto from = create({.wrap = faults("loss=0.02"), .psk_mode = mode, .secret = "the secret of the loss tests"});
    const auto to = create({.psk_mode = mode, .secret = "the secret of the loss tests"});
    auto channels = two_channels(*from, *to);
    within_the_contract(run(channels, 16, kMiB, {.loss = one_percent_of(16 * kMiB)}), *to, 16 * kMiB);
  }
}

TEST_F(MltLoss, WhoDidNotOptInOrAsksForMoreLosesNothing) {
  struct Case {
    const char* what;
    ChannelOptions channel;
    std::size_t size;
    LossTerms terms;
  };
  LossTerms more = one_percent_of(8 * kMiB);
  more.tolerance_ppm = kOnePercent + 1;
  LossTerms stranger = one_percent_of(8 * kMiB);
  stranger.communicator = kCommunicator + 1;
  const std::vector<Case> cases{
      {"no opt-in", {kCommunicator, -1, 0}, kMiB, one_percent_of(8 * kMiB)},
      {"above the limit", kOptedIn, kMiB, more},
      {"no terms", kOptedIn, kMiB, {}},
      {"another communicator", kOptedIn, kMiB, stranger},
      {"short messages", kOptedIn, FlowTag::kMinTolerantBytes - 1, one_percent_of(8 * kMiB)},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    const auto from = create({.wrap = faults("loss=0.02")});
    const auto to = create({});
    std::vector<Connection> channels;
    channels.push_back(connect(*from, *to, one.channel));
    const Came came = run(channels, 8 * kMiB / one.size, one.size, {.loss = one.terms});
    EXPECT_EQ(came.missing, 0u);
    EXPECT_EQ(came.different, 0u);
    EXPECT_EQ(eligible(*to), 0u);
    const std::string warnings = take_warnings();
    const bool told = warnings.find("ChannelOptions::comm_id") != std::string::npos;
    EXPECT_EQ(told, std::string(one.what) == "another communicator") << warnings;
  }
}

// Asks in every packet for what its channel may not have.
class GreedyIo final : public io::ForwardingIo {
 public:
  GreedyIo(std::unique_ptr<io::PacketIo> inner, std::uint32_t ppm) : ForwardingIo(std::move(inner)), ppm_(ppm) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    std::vector<io::TxPacket> changed(packets.begin(), packets.end());
    for (io::TxPacket& packet : changed) ask(packet.header);
    return ForwardingIo::send(changed);
  }

 private:
  void ask(io::Header& header) const {
    mlt::Packet packet;
    if (!mlt::parse(header.bytes(), packet)) return;
    auto* data = std::get_if<mlt::DataHeader>(&packet);
    if (data == nullptr || !data->open) return;
    const LossTerms terms = one_percent_of(8 * kMiB);
    data->open->tolerant = true;
    data->open->communicator = terms.communicator;
    data->open->collective = terms.collective;
    data->open->collective_bytes = terms.collective_bytes;
    data->open->ranks = data->open->edges = kRanks;
    data->open->tolerance_ppm = ppm_;
    std::array<std::byte, mlt::kMaxHeader> bytes;
    ASSERT_EQ(mlt::serialize(packet, bytes), header.bytes().size());
    std::copy_n(bytes.begin(), header.bytes().size(), header.bytes().begin());
  }

  const std::uint32_t ppm_;
};

TEST_F(MltLoss, APacketThatAsksForMoreGetsReliability) {
  struct Case {
    ChannelOptions channel;
    std::uint32_t ppm;
    bool counts;
  };
  for (const Case& one : {Case{{kCommunicator, -1, 0}, kOnePercent, false}, Case{kOptedIn, kOnePercent + 1, false},
                          Case{kOptedIn, kOnePercent, true}}) {
    const auto lossy = faults("loss=0.02");
    const auto from =
        create({.wrap = [&](auto inner) { return std::make_unique<GreedyIo>(lossy(std::move(inner)), one.ppm); }});
    const auto to = create({});
    std::vector<Connection> channels;
    channels.push_back(connect(*from, *to, one.channel));
    const Came came = run(channels, 8, kMiB, {.loss = one_percent_of(8 * kMiB)});
    EXPECT_EQ(came.different, 0u);
    EXPECT_EQ(eligible(*to) > 0, one.counts);
    EXPECT_TRUE(one.counts || came.missing == 0u) << came.missing;
  }
}

TEST_F(MltLoss, TheShortestTolerantMessageIsEligible) {
  const auto transport = create({});
  std::vector<Connection> channels;
  channels.push_back(connect(*transport, *transport, kOptedIn));
  run(channels, 1, FlowTag::kMinTolerantBytes, {.loss = one_percent_of(kMiB)});
  EXPECT_EQ(eligible(*transport), FlowTag::kMinTolerantBytes);
}

// Its identity and its loss terms have one communicator and one total on the wire.
TEST_F(MltLoss, AMessageWhoseIdentityContradictsItsTermsIsReliable) {
  struct Case {
    std::uint64_t communicator, bytes;
    bool tolerated;
  };
  const LossTerms loss = one_percent_of(kMiB);
  for (const Case& one : {Case{kCommunicator, loss.collective_bytes, true},
                          Case{kCommunicator + 1, loss.collective_bytes, false}, Case{kCommunicator, kMiB, false}}) {
    const auto transport = create({});
    const Connection channel = connect(*transport, *transport, kOptedIn);
    SendBuffer out(*channel.send, kMiB, 1);
    RecvBuffer in(*channel.recv, kMiB);
    FlowTag flow{.loss = loss};
    flow.identity.known = true;
    flow.identity.communicator = one.communicator;
    flow.identity.total_bytes = one.bytes;
    Request* received = must_recv(*channel.recv, {{in.mr.get(), 0, kMiB, 0}});
    Request* sent = must_send(*channel.send, *out.mr, 0, kMiB, 0, flow);
    ASSERT_TRUE(poll_until([&] {
      if (sent != nullptr && sent->test().value().done) sent = nullptr;
      const Progress progress = received->test().value();
      if (!progress.done) return false;
      EXPECT_EQ(progress.messages.size(), 1u);
      EXPECT_EQ(progress.messages[0].identity, flow.identity);
      EXPECT_EQ(progress.messages[0].loss.tolerance_ppm, one.tolerated ? kOnePercent : 0u);
      EXPECT_EQ(progress.messages[0].loss.collective, one.tolerated ? loss.collective : 0u);
      return true;
    }));
    EXPECT_EQ(eligible(*transport), one.tolerated ? kMiB : 0u);
    EXPECT_EQ(take_warnings().find("FlowTag::identity") != std::string::npos, !one.tolerated);
  }
}

TEST_F(MltLoss, BothEndsOptInAlike) {
  const auto from = create({});
  const auto to = create({});
  const ChannelOptions out{kCommunicator, -1, 0};
  for (const bool listener_in : {true, false}) {
    const auto listener = std::move(to->listen(0, listener_in ? kOptedIn : out).value());
    const auto refused = from->connect(0, listener->handle(), listener_in ? out : kOptedIn);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidUsage);
    EXPECT_THAT(refused.error().message, HasSubstr("max_tolerance_ppm"));
    EXPECT_THAT(refused.error().message, HasSubstr(listener_in ? "0 here and 10000" : "10000 here and 0"));
  }
  const auto most = to->listen(0, {kCommunicator, -1, 1'000'001});
  ASSERT_FALSE(most);
  EXPECT_THAT(most.error().message, HasSubstr("0 to 1000000"));
}

// Packets that come after their message has ended are acknowledged, and missing all the same; acknowledgements and the
// windows of a STOP are lost and late, too. run() compares what both ends say of each message.
TEST_F(MltLoss, BothEndsAgreeOnWhatIsMissingWhateverIsLate) {
  const auto from = create({.wrap = faults("loss=0.02,reorder=0.05/30ms")});
  const auto to = create({.wrap = faults("loss=0.05,reorder=0.2/3ms,duplicate=0.05")});
  auto channels = two_channels(*from, *to);
  Came all;
  for (std::uint32_t collective = 1; collective <= 8; ++collective) {
    const Came came = run(channels, 16, kMiB, {.loss = one_percent_of(16 * kMiB, collective)});
    EXPECT_EQ(came.not_zero + came.different, 0u);
    all.missing += came.missing;
  }
  EXPECT_GT(all.missing, 0u);
}

TEST_F(MltLoss, ACleanNetworkLosesNothing) {
  const auto transport = create({});
  auto channels = two_channels(*transport, *transport);
  const Came came = run(channels, 100, kMiB, {.loss = one_percent_of(100 * kMiB)});
  EXPECT_EQ(came.different, 0u);
  EXPECT_EQ(eligible(*transport), 100 * kMiB);
  EXPECT_TRUE(came.missing == 0 || dropped(*transport) > 0) << transport->summary();
}

// In mid-message the sender's process stands still; time is what the test makes of it.
TEST_F(MltLoss, ASenderThatFreezesLosesNothing) {
  constexpr std::size_t kSize = 16 * kMiB;
  const auto from = create({.engine = "inline"});
  const auto to = create({.engine = "inline"});
  const Connection channel = connect(*from, *to, kOptedIn);
  SendBuffer out(*channel.send, kSize, 1);
  RecvBuffer in(*channel.recv, kSize);
  for (std::uint32_t turns = 1; turns <= 5; ++turns) {
    Request* received = must_recv(*channel.recv, {{in.mr.get(), 0, kSize, 0}});
    Request* sent = must_send(*channel.send, *out.mr, 0, kSize, 0, {.loss = one_percent_of(kSize, turns)});
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      ASSERT_FALSE(sent->test()->done);
      ASSERT_FALSE(received->test()->done) << "it is to be frozen in the middle";
    }
    for (int ms = 0; ms < 50; ++ms) {
      clock_.advance(std::chrono::milliseconds(1));
      ASSERT_FALSE(received->test()->done);
    }
    bool sending = true;
    bool receiving = true;
    std::uint64_t missing = 0;
    ASSERT_TRUE(poll_until([&] {
      if (sending) sending = !sent->test()->done;
      if (receiving) {
        const auto progress = received->test();
        receiving = !progress->done;
        for (const MissingRange& range : progress->missing) missing += range.length;
      }
      return !sending && !receiving;
    }));
    EXPECT_TRUE(missing == 0 || dropped(*to) > 0) << to->summary();
    EXPECT_TRUE(missing > 0 || in.bytes == out.bytes);
    std::fill(in.bytes.begin(), in.bytes.end(), std::byte{0xee});
  }
}

// The core remembers 64 communicators, and gives no other a budget.
TEST_F(MltLoss, ACommunicatorIsForgottenWithItsLastChannel) {
  constexpr std::uint64_t kMany = 70;
  const auto transport = create({});
  for (std::uint64_t i = 1; i <= kMany; ++i) {
    ChannelOptions options = kOptedIn;
    options.comm_id = i;
    FlowTag flow{.loss = one_percent_of(kMiB)};
    flow.loss.communicator = i;
    std::vector<Connection> channels;
    channels.push_back(connect(*transport, *transport, options));
    channels.push_back(connect(*transport, *transport, options));
    run(channels, 2, FlowTag::kMinTolerantBytes, flow);
    EXPECT_EQ(eligible(*transport), 2 * i * FlowTag::kMinTolerantBytes);
    channels.pop_back();
    run(channels, 1, FlowTag::kMinTolerantBytes, {});
  }
}

TEST_F(MltLoss, MoreCommunicatorsThanItRemembersAreToldOnce) {
  const auto transport = create({});
  std::vector<Connection> channels;
  const auto open = [&](std::uint64_t communicator) {
    ChannelOptions options = kOptedIn;
    options.comm_id = communicator;
    channels.push_back(connect(*transport, *transport, options));
  };
  for (std::uint64_t i = 1; i <= 64; ++i) open(i);
  EXPECT_EQ(take_warnings(), "");
  for (std::uint64_t i = 65; i <= 67; ++i) open(i);
  const std::string warnings = take_warnings();
  const std::size_t first = warnings.find("more than 64 communicators that may lose something");
  ASSERT_NE(first, std::string::npos) << warnings;
  EXPECT_EQ(warnings.find("more than 64", first + 1), std::string::npos) << warnings;
}

}  // namespace
}  // namespace clustar::transport::conformance
