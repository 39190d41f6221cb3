// What every implementation of gdr::DeviceCopy must do. The rules are those of gdr/device_copy.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>

#include "tests/conformance/device_copy_under_test.h"
#include "transport/base/rng.h"

namespace clustar::gdr::conformance {
namespace {

using Ticket = DeviceCopy::Ticket;
using Begun = Result<std::optional<Ticket>>;
constexpr auto kPatience = std::chrono::seconds(20);

class DeviceCopyConformance : public ::testing::TestWithParam<DeviceCopyUnderTest> {
 protected:
  void SetUp() override {
    auto created = GetParam().create();
    if (!created) GTEST_SKIP() << GetParam().name << " cannot run here: " << created.error().message;
    bed_ = std::move(*created);
  }
  void TearDown() override {
    if (bed_ == nullptr) return;
    buffers_.clear();
    EXPECT_EQ(bed_->misuse(), "");
  }

  DeviceCopy& copy() { return bed_->copy(); }
  std::span<std::byte> host(std::size_t bytes) {
    auto buffer = copy().host_buffer(bytes);
    EXPECT_TRUE(buffer) << buffer.error().message;
    if (!buffer) return {};
    buffers_.push_back(std::move(*buffer));
    return buffers_.back()->bytes();
  }
  static void fill(std::byte* bytes, std::size_t count, unsigned seed) {
    Rng rng(seed);
    std::generate_n(bytes, count, [&] { return static_cast<std::byte>(rng.next()); });
  }
  // Tries again while there is no room.
  static Ticket must(const std::function<Begun()>& begin) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      const Begun begun = begin();
      if (!begun) {
        ADD_FAILURE() << begun.error().message;
        return 0;
      }
      if (*begun) return **begun;
    }
    ADD_FAILURE() << "there was never room";
    return 0;
  }
  void finish(Ticket ticket) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      const auto done = copy().done(ticket);
      ASSERT_TRUE(done) << done.error().message;
      if (*done) return;
    }
    FAIL() << "the copy never ended";
  }
  // Whatever was on its way before has ended.
  void settle(std::byte* device) {
    const auto scratch = host(1);
    finish(must([&] { return copy().to_host(scratch.data(), device, 1); }));
  }
  // The error that ends the use of the object, found by begin or by done.
  std::optional<Error> awaited_error(Ticket ticket) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      const auto done = copy().done(ticket);
      if (!done) return done.error();
    }
    return std::nullopt;
  }

  std::unique_ptr<DeviceCopyBed> bed_;
  std::vector<std::unique_ptr<HostBuffer>> buffers_;
};

TEST_P(DeviceCopyConformance, HasANameAndBuffersOfTheSizeThatWasAskedFor) {
  EXPECT_STRNE(copy().name(), "");
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20}) {
    const auto buffer = host(bytes);
    ASSERT_EQ(buffer.size(), bytes);
    fill(buffer.data(), bytes, 1);  // all of it can be written
  }
}

TEST_P(DeviceCopyConformance, BytesArriveAndNoOthersChange) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, (std::size_t{1} << 20) + 3}) {
    std::byte* device = bed_->device_memory(bytes + 128);
    const auto out = host(bytes + 128);
    const auto back = host(bytes + 128);
    fill(out.data(), out.size(), 2);
    std::fill_n(device, bytes + 128, std::byte{0xEE});
    std::fill_n(back.data(), bytes + 128, std::byte{0xDD});
    finish(must([&] { return copy().to_device(device + 64, out.data() + 64, bytes); }));
    EXPECT_EQ(std::memcmp(device + 64, out.data() + 64, bytes), 0);
    EXPECT_TRUE(std::all_of(device, device + 64, [](std::byte b) { return b == std::byte{0xEE}; }));
    EXPECT_EQ(device[64 + bytes], std::byte{0xEE});
    finish(must([&] { return copy().to_host(back.data() + 1, device + 64, bytes); }));
    EXPECT_EQ(std::memcmp(back.data() + 1, out.data() + 64, bytes), 0);
    EXPECT_EQ(back[0], std::byte{0xDD});
    EXPECT_EQ(back[bytes + 1], std::byte{0xDD});
  }
}

TEST_P(DeviceCopyConformance, ATicketStaysDone) {
  if (!bed_->in_order()) GTEST_SKIP() << "copies end in any order";
  std::byte* device = bed_->device_memory(64);
  const auto out = host(64);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 600; ++i) {
    tickets.push_back(must([&] { return copy().to_device(device, out.data(), 64); }));
  }
  finish(tickets.back());
  for (const Ticket ticket : tickets) EXPECT_TRUE(copy().done(ticket).value_or(false)) << ticket;
}

TEST_P(DeviceCopyConformance, WhatHasEndedIsDoneAnyNumberOfTimesAndMovesOnce) {
  std::byte* device = bed_->device_memory(64);
  const auto out = host(64);
  fill(out.data(), 64, 9);
  const Ticket first = must([&] { return copy().to_device(device, out.data(), 64); });
  finish(first);
  std::fill_n(device, 64, std::byte{0xEE});
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(copy().done(first).value_or(false));
    finish(must([&] { return copy().to_host(out.data(), device, 1); }));
  }
  EXPECT_EQ(std::count(device, device + 64, std::byte{0xEE}), 64);
}

TEST_P(DeviceCopyConformance, WrongArgumentsAreRefusedAndEndNothing) {
  std::byte* device = bed_->device_memory(64);
  const auto out = host(64);
  std::vector<std::byte> elsewhere(64);
  fill(out.data(), 64, 10);
  const Ticket before = must([&] { return copy().to_device(device, out.data(), 32); });
  const auto refused = [](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << result.error().message;
  };
  refused(copy().to_device(device, out.data(), 0));
  refused(copy().to_host(out.data(), device, 0));
  refused(copy().to_device(device, elsewhere.data(), 64));
  refused(copy().to_host(elsewhere.data(), device, 64));
  refused(copy().to_device(device, out.data() + 1, 64));
  refused(copy().done(0));
  refused(copy().done(before + 1000));
  finish(before);
  finish(must([&] { return copy().to_device(device + 32, out.data() + 32, 32); }));
  EXPECT_EQ(std::memcmp(device, out.data(), 64), 0);
}

TEST_P(DeviceCopyConformance, ABufferMayEndBeforeItsCopies) {
  constexpr std::size_t kBytes = 1 << 20;
  std::byte* device = bed_->device_memory(kBytes);
  const auto out = host(kBytes);
  std::fill_n(out.data(), kBytes, std::byte{0x44});
  const Ticket ticket = must([&] { return copy().to_device(device, out.data(), kBytes); });
  buffers_.clear();
  const auto other = host(kBytes);  // what is freed is given out again
  std::fill_n(other.data(), kBytes, std::byte{0x55});
  finish(ticket);
  EXPECT_EQ(std::count(device, device + kBytes, std::byte{0x44}), static_cast<std::ptrdiff_t>(kBytes));
}

// Nobody waits in between.
TEST_P(DeviceCopyConformance, WhatBeginsLaterSeesWhatBeganEarlier) {
  if (!bed_->in_order()) GTEST_SKIP() << "copies end in any order";
  constexpr std::size_t kBytes = 4096;
  std::byte* device = bed_->device_memory(kBytes);
  const auto first = host(kBytes);
  const auto second = host(kBytes);
  const auto zeros = host(200);
  const auto back = host(3 * kBytes);
  std::fill_n(zeros.data(), 200, std::byte{0});
  fill(first.data(), kBytes, 3);
  fill(second.data(), kBytes, 4);
  must([&] { return copy().to_device(device, first.data(), kBytes); });
  must([&] { return copy().to_host(back.data(), device, kBytes); });
  must([&] { return copy().to_device(device + 100, zeros.data(), 200); });
  must([&] { return copy().to_host(back.data() + kBytes, device, kBytes); });
  must([&] { return copy().to_device(device, second.data(), kBytes); });
  finish(must([&] { return copy().to_host(back.data() + 2 * kBytes, device, kBytes); }));
  EXPECT_EQ(std::memcmp(back.data(), first.data(), kBytes), 0);
  std::fill_n(first.data() + 100, 200, std::byte{0});
  EXPECT_EQ(std::memcmp(back.data() + kBytes, first.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(back.data() + 2 * kBytes, second.data(), kBytes), 0);
}

TEST_P(DeviceCopyConformance, ThousandsOfCopiesGiveTheBytesThatAModelGives) {
  if (!bed_->in_order()) GTEST_SKIP() << "copies end in any order";
  constexpr std::size_t kBytes = 32768;
  std::byte* device = bed_->device_memory(kBytes);
  const auto memory = host(kBytes);
  std::vector<std::byte> device_model(kBytes);
  std::vector<std::byte> host_model(kBytes);
  std::fill_n(device, kBytes, std::byte{0});
  fill(memory.data(), kBytes, 5);
  std::copy(memory.begin(), memory.end(), host_model.begin());
  Rng rng(6);
  Ticket last = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t bytes = 1 + rng.next() % 4000;
    const std::size_t at = rng.next() % (kBytes - bytes);
    const std::size_t from = rng.next() % (kBytes - bytes);
    if (rng.next() % 2 == 0) {
      last = must([&] { return copy().to_device(device + at, memory.data() + from, bytes); });
      std::copy_n(host_model.data() + from, bytes, device_model.data() + at);
    } else {
      last = must([&] { return copy().to_host(memory.data() + at, device + from, bytes); });
      std::copy_n(device_model.data() + from, bytes, host_model.data() + at);
    }
  }
  finish(last);
  EXPECT_TRUE(std::equal(device_model.begin(), device_model.end(), device));
  EXPECT_TRUE(std::equal(host_model.begin(), host_model.end(), memory.begin()));
}

TEST_P(DeviceCopyConformance, NothingWaitsForACopyThatDoesNotEnd) {
  std::byte* device = bed_->device_memory(4096);
  const auto out = host(4096);
  fill(out.data(), 4096, 7);
  std::fill_n(device, 4096, std::byte{0});
  settle(device);
  if (!bed_->hold(true)) GTEST_SKIP() << "this device ends copies at once";
  const Begun begun = copy().to_device(device, out.data(), 4096);
  ASSERT_TRUE(begun) << begun.error().message;
  ASSERT_TRUE(*begun);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(copy().done(**begun).value_or(true));
  EXPECT_EQ(std::count(device, device + 4096, std::byte{0}), 4096) << "said to be on its way, and there";
  bed_->hold(false);
  finish(**begun);
  EXPECT_EQ(std::memcmp(device, out.data(), 4096), 0);
}

TEST_P(DeviceCopyConformance, WhatIsOutstandingIsBounded) {
  std::byte* device = bed_->device_memory(64);
  const auto out = host(64);
  settle(device);
  if (!bed_->hold(true)) GTEST_SKIP() << "this device ends copies at once";
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i <= bed_->most_outstanding(); ++i) {
    const Begun begun = copy().to_device(device, out.data(), 64);
    ASSERT_TRUE(begun) << begun.error().message;
    if (!*begun) break;
    tickets.push_back(**begun);
  }
  EXPECT_EQ(tickets.size(), bed_->most_outstanding());
  EXPECT_FALSE(copy().to_host(out.data(), device, 64).value_or(1)) << "no room in the other direction either";
  bed_->hold(false);
  finish(tickets.back());
  EXPECT_TRUE(copy().to_device(device, out.data(), 64).value_or(std::nullopt)) << "room again";
}

TEST_P(DeviceCopyConformance, AnErrorEndsTheUseAndNoLaterByteIsWritten) {
  std::byte* device = bed_->device_memory(4096);
  const auto out = host(4096);
  const auto back = host(4096);
  std::fill_n(out.data(), 4096, std::byte{0x11});
  const Ticket before = must([&] { return copy().to_device(device, out.data(), 4096); });
  finish(before);
  if (!bed_->next_copy_fails()) GTEST_SKIP() << "this device cannot be made to fail";
  std::fill_n(out.data(), 4096, std::byte{0x22});
  std::fill_n(back.data(), 4096, std::byte{0x33});
  const Begun failing = copy().to_device(device, out.data(), 2048);
  std::optional<Error> error;
  if (!failing) {
    error = failing.error();
  } else {
    ASSERT_TRUE(*failing) << "there was room";
    error = awaited_error(**failing);
  }
  ASSERT_TRUE(error) << "no error came";
  EXPECT_NE(error->message, "");
  // Half of the failing copy may be there; of later ones nothing.
  for (const Begun& later :
       {copy().to_device(device + 2048, out.data(), 2048), copy().to_host(back.data(), device, 4096)}) {
    EXPECT_FALSE(later) << "begun after an error";
  }
  if (failing) {
    EXPECT_FALSE(copy().done(**failing)) << "told again: the context is dead";
  }
  EXPECT_TRUE(copy().done(before).value_or(false)) << "what ended before has ended";
  EXPECT_TRUE(std::all_of(device + 2048, device + 4096, [](std::byte b) { return b == std::byte{0x11}; }));
  EXPECT_TRUE(std::all_of(back.begin(), back.end(), [](std::byte b) { return b == std::byte{0x33}; }));
}

// The owner of their memory must know when it is free.
TEST_P(DeviceCopyConformance, AfterAnErrorWhatBeganIsAskedForUntilItHasEnded) {
  std::byte* device = bed_->device_memory(4096);
  const auto out = host(4096);
  fill(out.data(), 4096, 11);
  std::fill_n(device, 4096, std::byte{0});
  settle(device);
  if (bed_->most_outstanding() < 2) GTEST_SKIP() << "one copy at a time";
  if (!bed_->hold(true)) GTEST_SKIP() << "this device ends copies at once";
  const Ticket begun = must([&] { return copy().to_device(device, out.data(), 2048); });
  if (!bed_->next_begin_fails()) GTEST_SKIP() << "this device cannot be made to fail";
  EXPECT_FALSE(copy().to_device(device + 2048, out.data(), 2048));
  for (int i = 0; i < 100; ++i) {
    const auto done = copy().done(begun);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_FALSE(*done) << "it is under way";
  }
  bed_->hold(false);
  finish(begun);
  EXPECT_EQ(std::memcmp(device, out.data(), 2048), 0);
  EXPECT_EQ(std::count(device + 2048, device + 4096, std::byte{0}), 2048);
  EXPECT_FALSE(copy().to_device(device, out.data(), 1)) << "begun after an error";
  EXPECT_TRUE(copy().done(begun).value_or(false));
}

TEST_P(DeviceCopyConformance, CopiesThatWereQueuedBehindAFailedOneWriteNothing) {
  std::byte* device = bed_->device_memory(4096);
  const auto out = host(4096);
  std::fill_n(device, 4096, std::byte{0x11});
  std::fill_n(out.data(), 4096, std::byte{0x22});
  settle(device);
  if (bed_->most_outstanding() < 3) GTEST_SKIP() << "one copy at a time";
  if (!bed_->hold(true)) GTEST_SKIP() << "this device ends copies at once";
  const Begun failing = copy().to_device(device, out.data(), 1024);
  const Begun behind = copy().to_device(device + 1024, out.data(), 1024);
  const Begun last = copy().to_device(device + 2048, out.data() + 2048, 1024);
  ASSERT_TRUE(failing && behind && last && *failing && *behind && *last);
  if (!bed_->next_copy_fails()) GTEST_SKIP() << "this device cannot be made to fail";
  bed_->hold(false);
  EXPECT_TRUE(awaited_error(**last));
  EXPECT_TRUE(std::all_of(device + 1024, device + 4096, [](std::byte b) { return b == std::byte{0x11}; }));
}

TEST_P(DeviceCopyConformance, EndsInTimeWithCopiesOnTheirWay) {
  std::byte* device = bed_->device_memory(4096);
  const auto out = host(4096);
  fill(out.data(), 4096, 8);
  must([&] { return copy().to_device(device, out.data(), 4096); });
  // A buffer may end before the copies that use it do.
  buffers_.clear();
  const auto before = std::chrono::steady_clock::now();
  bed_->end();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
}

TEST_P(DeviceCopyConformance, EndsInTimeWithCopiesThatNeverEnd) {
  std::byte* device = bed_->device_memory(4096);
  const auto out = host(4096);
  settle(device);
  if (!bed_->hold(true)) GTEST_SKIP() << "this device ends copies at once";
  must([&] { return copy().to_device(device, out.data(), 4096); });
  buffers_.clear();
  const auto before = std::chrono::steady_clock::now();
  bed_->end();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
}

INSTANTIATE_TEST_SUITE_P(Implementations, DeviceCopyConformance, ::testing::ValuesIn(device_copies_under_test()),
                         [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace clustar::gdr::conformance
