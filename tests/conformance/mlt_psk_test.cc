// What MltTransport promises with a pre-shared key: that nothing is placed but what the peer sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "tests/conformance/mlt_psk_bed.h"
#include "transport/io/decorators/faulty_io.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Somebody between the hosts: every packet that comes in is followed by what `forge` makes of it, as often as it makes
// something, on the same or another path.
class ForgingIo final : public io::ForwardingIo {
 public:
  struct Forgery {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
    std::uint8_t path;
  };
  using Forge = std::function<std::optional<Forgery>(Forgery genuine)>;
  ForgingIo(std::unique_ptr<io::PacketIo> inner, Forge forge, std::atomic<std::uint64_t>& forged)
      : ForwardingIo(std::move(inner)), forge_(std::move(forge)), forged_(forged) {}

  Result<std::size_t> receive(std::span<io::RxPacket> packets) override {
    kept_.clear();
    const auto got = ForwardingIo::receive(packets.first(packets.size() / 2));
    if (!got) return got;
    genuine_ = *got;
    std::size_t all = *got;
    for (std::size_t i = 0; i < genuine_; ++i) {
      const io::RxPacket& packet = packets[i];
      auto forgery = forge_(
          {{packet.header.begin(), packet.header.end()}, {packet.payload.begin(), packet.payload.end()}, packet.path});
      if (!forgery) continue;
      kept_.push_back(std::make_unique<Forgery>(std::move(*forgery)));
      packets[all] = packet;
      packets[all].header = kept_.back()->header;
      packets[all].payload = kept_.back()->payload;
      packets[all].path = kept_.back()->path;
      ++all;
      ++forged_;
    }
    // The forgeries first: what is believed would keep the genuine ones out.
    std::rotate(packets.begin(), packets.begin() + static_cast<std::ptrdiff_t>(genuine_),
                packets.begin() + static_cast<std::ptrdiff_t>(all));
    forgeries_ = all - genuine_;
    return all;
  }
  void release(std::span<const io::RxPacket> packets) override { ForwardingIo::release(packets.subspan(forgeries_)); }

 private:
  const Forge forge_;
  std::atomic<std::uint64_t>& forged_;
  std::vector<std::unique_ptr<Forgery>> kept_;
  std::size_t genuine_ = 0;
  std::size_t forgeries_ = 0;
};

class MltPsk : public MltPskBed {
 protected:
  // Transfers while somebody forges what `there` receives; the receiving transport's summary.
  std::string transfer_despite(const ForgingIo::Forge& forge) {
    forged_ = 0;
    const auto here = create(GetParam());
    const auto there = create(GetParam(), "a secret of the tests", [&](auto inner) {
      return std::make_unique<ForgingIo>(std::move(inner), forge, forged_);
    });
    {
      Connection connection = connect(*here, *there);
      for (const unsigned seed : {1u, 2u, 3u}) transfer(connection, 300'000, seed);
    }
    EXPECT_GT(forged_, 50u);
    return there->summary();
  }
  // No strangers, so each packet counts as one of the two.
  std::string counts(std::uint64_t unauthenticated, std::uint64_t replayed) {
    return " " + std::to_string(unauthenticated) + " unauthenticated dropped, " + std::to_string(replayed) +
           " replayed";
  }

  std::atomic<std::uint64_t> forged_{0};
};

TEST_P(MltPsk, CleanTrafficIsAllGenuine) {
  const auto here = create(GetParam());
  const auto there = create(GetParam());
  Connection connection = connect(*here, *there);
  for (const std::size_t size : {0ul, 1ul, 9000ul, 100'000ul, 3'000'000ul}) transfer(connection, size);
  EXPECT_THAT(there->summary(), HasSubstr(counts(0, 0)));
  EXPECT_THAT(here->summary(), HasSubstr(counts(0, 0)));
}

TEST_P(MltPsk, ATamperedHeaderIsDropped) {
  std::size_t at = 0;
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) {
    // Not the first 12 bytes: with another secret it would be a stranger's.
    packet.header[12 + at++ % (packet.header.size() - 12)] ^= std::byte{4};
    return std::optional(packet);
  });
  EXPECT_THAT(summary, HasSubstr(" 0 bytes missing"));
  // A counter made smaller counts as replayed.
  EXPECT_THAT(summary, ::testing::Not(HasSubstr(" 0 unauthenticated")));
}

TEST_P(MltPsk, ATamperedTagIsDropped) {
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) {
    packet.header.back() ^= std::byte{1};
    return std::optional(packet);
  });
  EXPECT_THAT(summary, HasSubstr(counts(forged_, 0)));
}

TEST_P(MltPsk, ATamperedPayloadIsDropped) {
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) -> std::optional<ForgingIo::Forgery> {
    if (packet.payload.empty()) return std::nullopt;
    packet.payload[packet.payload.size() / 2] ^= std::byte{1};
    return packet;
  });
  EXPECT_THAT(summary, HasSubstr(counts(forged_, 0)));
}

TEST_P(MltPsk, AReplayedPacketIsDropped) {
  std::optional<ForgingIo::Forgery> before;
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) { return std::exchange(before, packet); });
  EXPECT_THAT(summary, HasSubstr(counts(0, forged_)));
}

TEST_P(MltPsk, APacketOfAnotherPathIsDropped) {
  const auto summary = transfer_despite([&](ForgingIo::Forgery packet) {
    packet.path = static_cast<std::uint8_t>((packet.path + 1) % 8);
    return std::optional(packet);
  });
  // Some count as replayed, by what was seen on that path.
  EXPECT_THAT(summary, AllOf(HasSubstr(" 0 bytes missing"), ::testing::Not(HasSubstr(" 0 unauthenticated"))));
}

TEST_P(MltPsk, PacketsOfAConnectionThatIsOverAreDropped) {
  std::vector<ForgingIo::Forgery> old;
  bool replay = false;
  std::size_t next = 0;
  const auto forge = [&](ForgingIo::Forgery packet) -> std::optional<ForgingIo::Forgery> {
    if (!replay) {
      old.push_back(packet);
      return std::nullopt;
    }
    if (next == old.size()) return std::nullopt;
    ForgingIo::Forgery again = old[next++];
    std::copy_n(packet.header.begin() + 4, 8, again.header.begin() + 4);  // the new connection's secret
    return again;
  };
  const auto here = create(GetParam());
  const auto there = create(GetParam(), "a secret of the tests",
                            [&](auto inner) { return std::make_unique<ForgingIo>(std::move(inner), forge, forged_); });
  {
    Connection connection = connect(*here, *there);
    transfer(connection, 500'000, 1);
  }
  Connection connection = connect(*here, *there);
  replay = true;
  for (const unsigned seed : {2u, 3u}) transfer(connection, 500'000, seed);
  EXPECT_GT(next, 50u);
  EXPECT_THAT(there->summary(), ::testing::Not(HasSubstr(" 0 unauthenticated")));
}

TEST_P(MltPsk, LossCorruptionAndDuplicatesCostTimeOnly) {
  const auto bad = [](std::uint64_t seed) {
    return [seed](std::unique_ptr<io::PacketIo> inner) -> std::unique_ptr<io::PacketIo> {
      io::FaultSpec spec;
      spec.loss = 0.03;
      spec.duplicate = 0.03;
      spec.reorder = 0.03;
      spec.corrupt = 0.03;
      spec.seed = seed;
      return std::move(io::FaultyIo::create(std::move(inner), spec).value());
    };
  };
  const auto here = create(GetParam(), "a secret of the tests", bad(1));
  const auto there = create(GetParam(), "a secret of the tests", bad(2));
  Connection connection = connect(*here, *there);
  for (const std::size_t size : {0ul, 1ul, 9000ul, 100'000ul, 3'000'000ul}) transfer(connection, size);
  EXPECT_THAT(there->summary(), AllOf(HasSubstr(" 0 bytes missing"), ::testing::Not(HasSubstr(" 0 unauthenticated")),
                                      ::testing::Not(HasSubstr(" 0 replayed"))));
}

// As mlt_driver_test, over the sealed words on the TCP connection.
TEST_P(MltPsk, WhoClosesLeavesNoDoubtAboutWhatArrived) {
  std::atomic<bool> mute{false};
  const auto here = create(GetParam());
  const auto there = create(GetParam(), "a secret of the tests",
                            [&](auto inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
  Connection connection = connect(*here, *there);
  SendBuffer from(*connection.send, 9000, 1);
  RecvBuffer to(*connection.recv, 9000);
  Request* receive = must_recv(*connection.recv, {{to.mr.get(), 0, 9000, 0}});
  ASSERT_FALSE(poll_until([&] { return receive->test().value().done; }, milliseconds(20)));
  mute = true;
  Request* send = must_send(*connection.send, *from.mr, 0, 9000);
  ASSERT_TRUE(poll_until([&] { return receive->test().value().done; }));
  EXPECT_FALSE(send->test().value().done);
  connection.recv.reset();
  finish({send});
  EXPECT_EQ(from.bytes, to.bytes);
}

TEST_P(MltPsk, WhoClosesRepeatsWhatWasDoneAndDidNotArrive) {
  std::atomic<bool> mute{true};
  const auto here = create(GetParam(), "a secret of the tests",
                           [&](auto inner) { return std::make_unique<MuteIo>(std::move(inner), mute); });
  const auto there = create(GetParam());
  for (const bool posted_before : {true, false}) {
    Connection connection = connect(*here, *there);
    SendBuffer from(*connection.send, 3000, 1);
    RecvBuffer to(*connection.recv, 3000);
    std::vector<Request*> receives;
    const auto post = [&] {
      for (std::size_t i = 0; i < 3; ++i) {
        receives.push_back(must_recv(*connection.recv, {{to.mr.get(), i * 1000, 1000, 0}}));
      }
    };
    if (posted_before) post();
    for (std::size_t i = 0; i < 3; ++i) finish({must_send(*connection.send, *from.mr, i * 1000, 1000)});
    connection.send.reset();
    if (!posted_before) post();
    finish(receives);
    EXPECT_EQ(from.bytes, to.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, MltPsk, ::testing::Values("authenticate", "encrypt"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace clustar::transport::conformance
