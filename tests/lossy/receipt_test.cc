// What a receiver checks of a round, and what the kernel is asked for before one.
#include "bench/lossy/receipt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "bench/lossy/kernel_tcp.h"

namespace clustar::bench::lossy {
namespace {

using transport::MissingRange;

constexpr int kSender = 3;
constexpr std::uint64_t kSequence = 77;

std::vector<std::byte> message() {
  std::vector<std::byte> bytes(40'000);
  write_stamps(bytes, kSender, kSequence);
  return bytes;
}

void zero(std::vector<std::byte>& bytes, const MissingRange& range) {
  std::ranges::fill(std::span(bytes).subspan(range.offset, range.length), std::byte{0});
}

Terms terms(const char* arm) {
  Terms terms;
  terms.arm = *find_arm(arm);
  terms.senders = 2;
  terms.message_bytes = 100'000;
  terms.messages = 3;
  return terms;
}

TEST(LossyReceipt, AWholeMessageIsWhatWasSent) {
  EXPECT_TRUE(check_bytes(message(), kSender, kSequence, {}));
  EXPECT_FALSE(check_bytes(message(), kSender, kSequence + 1, {}));
  EXPECT_FALSE(check_bytes(message(), kSender + 1, kSequence, {}));
}

// The case that a receiver used to take on trust.
TEST(LossyReceipt, WhatIsThereOfAMessageWithMissingBytesIsCompared) {
  auto bytes = message();
  const MissingRange missing{0, 8000, 1000};  // from the middle of one page into the next
  zero(bytes, missing);
  EXPECT_TRUE(check_bytes(bytes, kSender, kSequence, {&missing, 1}));
  bytes[4 * 4096] ^= std::byte{1};
  const auto checked = check_bytes(bytes, kSender, kSequence, {&missing, 1});
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("byte 16384 of a message of sender 3"), std::string::npos)
      << checked.error().message;
}

TEST(LossyReceipt, AStampMayBeMissingInPart) {
  auto bytes = message();
  const MissingRange missing{0, 4100, 100};
  zero(bytes, missing);
  EXPECT_TRUE(check_bytes(bytes, kSender, kSequence, {&missing, 1}));
  bytes[4097] ^= std::byte{1};
  EXPECT_FALSE(check_bytes(bytes, kSender, kSequence, {&missing, 1}));
}

TEST(LossyReceipt, BytesThatAreMissingAndNotReportedAreFound) {
  auto bytes = message();
  zero(bytes, {0, 8000, 1000});
  EXPECT_FALSE(check_bytes(bytes, kSender, kSequence, {}));
}

TEST(LossyReceipt, WhatIsReportedMissingReadsAsZero) {
  const MissingRange missing{0, 8000, 1000};
  EXPECT_FALSE(check_bytes(message(), kSender, kSequence, {&missing, 1}));
}

TEST(LossyReceipt, RangesLieWithinTheMessage) {
  for (const MissingRange& range :
       {MissingRange{0, 39'999, 2}, MissingRange{0, 50'000, 1}, MissingRange{0, 1, ~std::uint64_t{0}}}) {
    EXPECT_FALSE(check_bytes(message(), kSender, kSequence, {&range, 1})) << range.offset;
  }
}

TEST(LossyReceipt, AnArmMayMissItsPartOfTheRoundAndNotAByteMore) {
  EXPECT_TRUE(check_missing(terms("mlt-p1"), 5, 6'000));
  const auto more = check_missing(terms("mlt-p1"), 5, 6'001);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message,
            "mlt-p1 breaks its loss contract: 6001 of 600000 bytes are missing in round 5, at most 6000 may be");
}

TEST(LossyReceipt, AReliableArmMayMissNothing) {
  for (const char* arm : {"mlt-p0", "mlt-1path", "mlt-gbn", "tcp-cubic", "clustar-tcp"}) {
    EXPECT_TRUE(check_missing(terms(arm), 1, 0)) << arm;
    EXPECT_FALSE(check_missing(terms(arm), 1, 1)) << arm;
  }
}

TEST(LossyReceipt, AStaticDeadlineHasNoBound) {
  EXPECT_EQ(allowed_missing(terms("mlt-deadline")), std::nullopt);
  EXPECT_TRUE(check_missing(terms("mlt-deadline"), 1, 600'000));
}

// Sysctls of a namespace; `absent` is not among this kernel's.
struct Sysctls {
  std::string absent;
  std::map<std::string, std::string> values = {};

  SetSysctl setter() {
    return [this](const std::string& name, const std::string& value) -> Result<void> {
      if (name == absent) return fail(ErrorCode::kUnavailable, "this kernel has no sysctl " + name);
      values[name] = value;
      return {};
    };
  }
};

constexpr const char* kRto = "net.ipv4.tcp_rto_min_us";
constexpr const char* kEcn = "net.ipv4.tcp_ecn";

TEST(LossyKernelTcp, ArmsGetWhatTheyAskForAndLeaveTheDefaults) {
  Sysctls sysctls;
  ASSERT_TRUE(set_kernel_tcp(*find_arm("tcp-cubic-ecn"), sysctls.setter()));
  EXPECT_EQ(sysctls.values[kRto], "5000");
  EXPECT_EQ(sysctls.values[kEcn], "1");
  ASSERT_TRUE(reset_kernel_tcp(*find_arm("tcp-cubic-ecn"), sysctls.setter()));
  EXPECT_EQ(sysctls.values[kRto], "200000");
  EXPECT_EQ(sysctls.values[kEcn], "2");
  ASSERT_TRUE(set_kernel_tcp(*find_arm("tcp-bbr-rto5"), sysctls.setter()));
  EXPECT_EQ(sysctls.values[kRto], "5000");
  EXPECT_EQ(sysctls.values[kEcn], "2");
}

TEST(LossyKernelTcp, MltAsksTheKernelForNothing) {
  Sysctls sysctls;
  for (const char* arm : {"mlt-p0", "mlt-p1", "mlt-gbn", "mlt-deadline", "mlt-1path"}) {
    EXPECT_TRUE(set_kernel_tcp(*find_arm(arm), sysctls.setter())) << arm;
    EXPECT_TRUE(reset_kernel_tcp(*find_arm(arm), sysctls.setter())) << arm;
  }
  EXPECT_TRUE(sysctls.values.empty());
}

TEST(LossyKernelTcp, AKernelBefore611LeavesOutOnlyArmsWithAnotherRto) {
  Sysctls sysctls{kRto};
  for (const char* arm : {"tcp-cubic", "tcp-bbr", "mptcp", "clustar-tcp", "mlt-p0"}) {
    EXPECT_TRUE(set_kernel_tcp(*find_arm(arm), sysctls.setter())) << arm;
    EXPECT_TRUE(reset_kernel_tcp(*find_arm(arm), sysctls.setter())) << arm;
  }
  const auto set = set_kernel_tcp(*find_arm("tcp-cubic-rto5"), sysctls.setter());
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(set.error().message.find("6.11"), std::string::npos) << set.error().message;
}

}  // namespace
}  // namespace clustar::bench::lossy
