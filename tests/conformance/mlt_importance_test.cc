// What the sender marks as important is never missing, through waist 1.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/conformance/mlt_loss_bed.h"
#include "tests/conformance/staged_bed.h"

namespace clustar::transport::conformance {
namespace {

constexpr std::uint8_t kFloat32 = 7, kInt32 = 2;  // ncclDataType_t
constexpr std::size_t kMessages = 64;
constexpr std::size_t kSettled = 8;  // messages after which the threshold stands between the large and the small

// One float in four is large: the first quarter of each message.
void fill_with_gradients(std::vector<std::byte>& bytes) {
  const std::size_t count = bytes.size() / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = (i < count / 4 ? 100.0f : 1.0f) * (1.0f + 0.5f * std::sin(static_cast<float>(i)));
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
}

class MltImportance : public MltLossBed {
 protected:
  struct Lost {
    std::uint64_t large = 0, small = 0;  // bytes that are missing of either, of the messages after kSettled
  };
  Lost lost_with(std::uint32_t important_ppm, std::uint8_t datatype) {
    const auto from = create({.wrap = faults("loss=0.03"), .loss_important_ppm = important_ppm});
    const auto to = create({});
    Connection channel = connect(*from, *to, kOptedIn);
    SendBuffer send(*channel.send, kMiB, 1);
    fill_with_gradients(send.bytes);
    return lost_over(channel, send, datatype, [](std::size_t offset) { return offset < kMiB / 4; });
  }
  // `is_large`: of the byte at this offset of each message.
  static Lost lost_over(Connection& channel, SendBuffer& send, std::uint8_t datatype,
                        const std::function<bool(std::size_t)>& is_large) {
    RecvBuffer recv(*channel.recv, kMiB);
    FlowTag flow;
    flow.loss = one_percent_of(kMessages * kMiB);
    flow.identity.known = true;
    flow.identity.communicator = kCommunicator;
    flow.identity.total_bytes = flow.loss.collective_bytes;
    flow.identity.datatype = datatype;
    Lost lost;
    for (std::size_t number = 0; number < kMessages; ++number) {
      Request* received = must_recv(*channel.recv, {{recv.mr.get(), 0, kMiB, 0}});
      Request* sent = must_send(*channel.send, *send.mr, 0, kMiB, 0, flow);
      const bool all = poll_until(
          [&] {
            if (sent != nullptr) {
              const auto progress = sent->test();
              EXPECT_TRUE(progress) << progress.error().message;
              if (!progress) return true;
              if (progress->done) sent = nullptr;
            }
            if (received != nullptr) {
              const auto progress = received->test();
              EXPECT_TRUE(progress) << progress.error().message;
              if (!progress) return true;
              if (progress->done) {
                received = nullptr;
                for (const MissingRange& range : progress->missing) {
                  for (std::size_t at = range.offset; number >= kSettled && at < range.offset + range.length; ++at) {
                    ++(is_large(at) ? lost.large : lost.small);
                  }
                }
              }
            }
            return sent == nullptr && received == nullptr;
          },
          std::chrono::seconds(60));
      if (!all) {
        ADD_FAILURE() << "message " << number << " did not come";
        break;
      }
    }
    return lost;
  }
};

TEST_F(MltImportance, LargeGradientsAreNotLost) {
  const Lost unmarked = lost_with(0, kFloat32);
  EXPECT_GT(unmarked.large, 0u);
  EXPECT_GT(unmarked.small, 0u);
  const Lost marked = lost_with(400'000, kFloat32);
  // A packet may lie across the border between large and small.
  EXPECT_EQ(marked.large, 0u);
  EXPECT_GT(marked.small, 0u) << "the others may still be lost";
}

TEST_F(MltImportance, WhatIsNotKnownToBeFloatsIsNotMarkedAndThatIsSaidOnce) {
  EXPECT_GT(lost_with(400'000, kInt32).large, 0u);
  const std::string warnings = take_warnings();
  const std::size_t first = warnings.find("CLUSTAR_LOSS_IMPORTANT marks nothing");
  ASSERT_NE(first, std::string::npos) << warnings;
  EXPECT_EQ(warnings.find("marks nothing", first + 30), std::string::npos) << warnings;
}

// What a program says by clustar.h, of memory whose values nobody looks at.
class MltMarkedMemory : public MltImportance {
 protected:
  static constexpr std::size_t kBlock = 64 * 1024;
  static bool is_marked(std::size_t offset) { return offset / kBlock % 3 == 1; }

  // Over `from`, of which the table was given to the inner transport.
  Lost lost_with_marks(Transport& from, Transport& to, ImportanceTable* table) {
    Connection channel = connect(from, to, kOptedIn);
    SendBuffer send(*channel.send, kMiB, 1);
    if (table != nullptr) {
      std::vector<std::uint8_t> important(kMiB / kBlock);
      for (std::size_t i = 0; i < important.size(); ++i) important[i] = is_marked(i * kBlock) ? 1 : 0;
      table->mark(send.bytes.data(), kMiB, kBlock, important, clock_.now());
    }
    return lost_over(channel, send, kInt32, is_marked);
  }
};

TEST_F(MltMarkedMemory, NothingOfItIsMissing) {
  const auto to = create({});
  const Lost unmarked = lost_with_marks(*create({.wrap = faults("loss=0.03")}), *to, nullptr);
  EXPECT_GT(unmarked.large, 0u);
  EXPECT_GT(unmarked.small, 0u);
  const auto table = std::make_shared<ImportanceTable>();
  const Lost marked = lost_with_marks(*create({.wrap = faults("loss=0.03"), .importance = table}), *to, table.get());
  EXPECT_EQ(marked.large, 0u);
  EXPECT_GT(marked.small, 0u) << "the others may still be lost";
  EXPECT_EQ(table->totals().messages, kMessages);
  EXPECT_EQ(table->totals().important_bytes, kMessages * 5 * kBlock);
}

TEST_F(MltMarkedMemory, NorOfAGpusThatIsCopiedFirst) {
  const auto table = std::make_shared<ImportanceTable>();
  const auto from = emulated_stage(create({.wrap = faults("loss=0.03"), .importance = table}), Log(),
                                   [&](staged::Options& options) { options.importance = table; });
  const auto to = emulated_stage(create({}), Log());
  set_memory_under_test(gdr::MemoryKind::kCuda);
  const Lost marked = lost_with_marks(*from, *to, table.get());
  set_memory_under_test(gdr::MemoryKind::kHost);
  EXPECT_EQ(marked.large, 0u);
  EXPECT_GT(marked.small, 0u);
  EXPECT_EQ(table->totals().messages, kMessages);
}

}  // namespace
}  // namespace clustar::transport::conformance
