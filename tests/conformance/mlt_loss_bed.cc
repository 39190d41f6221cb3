#include "tests/conformance/mlt_loss_bed.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "transport/io/decorators/faulty_io.h"

namespace clustar::transport::conformance {
namespace {

// Compares one message with what was sent, and fills the receive again.
void look(const SendBuffer& from, RecvBuffer& to, std::span<const MissingRange> missing, Came& came) {
  std::vector<bool> lost(to.bytes.size(), false);
  for (const MissingRange& range : missing) {
    ++came.ranges;
    EXPECT_EQ(range.part, 0u);
    EXPECT_LE(range.offset + range.length, lost.size());
    for (std::size_t i = range.offset; i < std::min(range.offset + range.length, lost.size()); ++i) {
      EXPECT_FALSE(lost[i]) << "reported twice";
      lost[i] = true;
    }
  }
  for (std::size_t i = 0; i < lost.size(); ++i) {
    if (lost[i]) {
      ++came.missing;
      came.not_zero += to.bytes[i] != std::byte{0} ? 1 : 0;
    } else {
      came.different += to.bytes[i] != from.bytes[i] ? 1 : 0;
    }
  }
  std::fill(to.bytes.begin(), to.bytes.end(), std::byte{0xee});
}

// Neighbours are one.
std::vector<std::pair<std::uint64_t, std::uint64_t>> joined(std::span<const MissingRange> missing) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (const MissingRange& range : missing) {
    if (!out.empty() && out.back().first + out.back().second == range.offset) {
      out.back().second += range.length;
    } else {
      out.emplace_back(range.offset, range.length);
    }
  }
  return out;
}

}  // namespace

LossTerms one_percent_of(std::uint64_t bytes, std::uint32_t collective) {
  LossTerms terms;
  terms.communicator = kCommunicator;
  terms.collective = collective;
  terms.collective_bytes = kRanks * bytes;
  terms.ranks = terms.edges = kRanks;
  terms.tolerance_ppm = kOnePercent;
  return terms;
}

MltLossBed::Wrap MltLossBed::faults(const std::string& spec) {
  return [this, spec](std::unique_ptr<io::PacketIo> inner) -> std::unique_ptr<io::PacketIo> {
    io::FaultSpec own = io::FaultSpec::parse(spec).value();
    own.seed = seed_++;
    return std::move(io::FaultyIo::create(std::move(inner), own).value());
  };
}

Came MltLossBed::run(std::vector<Connection>& channels, std::size_t messages, std::size_t size, const FlowTag& flow,
                     Waiting* waiting) {
  struct Side {
    std::unique_ptr<SendBuffer> from;
    std::unique_ptr<RecvBuffer> to;
    Request* sent = nullptr;
    Request* received = nullptr;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> at_sender{};  // what each end says is missing
    std::vector<std::pair<std::uint64_t, std::uint64_t>> at_receiver{};
    bool compared = true;
    std::size_t begun = 0;
  };
  Came came;
  std::vector<Side> sides;
  for (const Connection& channel : channels) {
    const auto seed = static_cast<unsigned>(sides.size() + 1);
    sides.push_back(
        {std::make_unique<SendBuffer>(*channel.send, size, seed), std::make_unique<RecvBuffer>(*channel.recv, size)});
  }
  const std::size_t share = (messages + sides.size() - 1) / sides.size();
  std::size_t begun = 0;
  std::size_t ended = 0;
  const bool all = poll_until(
      [&] {
        if (waiting != nullptr) waiting->test();
        for (std::size_t i = 0; i < sides.size(); ++i) {
          Side& side = sides[i];
          if (side.sent == nullptr && side.received == nullptr && side.begun < share && begun < messages) {
            side.received = must_recv(*channels[i].recv, {{side.to->mr.get(), 0, size, 0}});
            side.sent = must_send(*channels[i].send, *side.from->mr, 0, size, 0, flow);
            side.compared = false;
            ++side.begun;
            ++begun;
          }
          if (side.sent != nullptr) {
            const auto progress = side.sent->test();
            EXPECT_TRUE(progress) << progress.error().message;
            if (!progress) return true;
            if (progress->done) {
              side.sent = nullptr;
              side.at_sender = joined(progress->missing);
              EXPECT_TRUE(progress->sent != nullptr && progress->sent->loss.collective == flow.loss.collective);
            }
          }
          if (side.sent == nullptr && side.received == nullptr && !std::exchange(side.compared, true)) {
            EXPECT_EQ(side.at_sender, side.at_receiver) << "the sender knows what its receiver does without";
          }
          if (side.received == nullptr) continue;
          const auto progress = side.received->test();
          EXPECT_TRUE(progress) << progress.error().message;
          if (!progress) return true;
          if (!progress->done) continue;
          side.received = nullptr;
          came.sizes.push_back(progress->sizes[0]);
          side.at_receiver = joined(progress->missing);
          look(*side.from, *side.to, progress->missing, came);
          ++ended;
        }
        return ended == messages &&
               std::all_of(sides.begin(), sides.end(), [](const Side& side) { return side.compared; });
      },
      std::chrono::seconds(60));
  EXPECT_TRUE(all) << ended << " of " << messages << " messages came";
  return came;
}

}  // namespace clustar::transport::conformance
