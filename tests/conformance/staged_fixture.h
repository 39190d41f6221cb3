// The fixture of the tests of StagedTransport, and what plays GPU memory for them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/staged_bed.h"
#include "tests/conformance/transport_under_test.h"

namespace clustar::transport::conformance {

inline constexpr std::size_t kLong = 3 << 20;

inline std::unique_ptr<Transport> plain_tcp() { return std::move(tcp_under_test().front().create(Log()).value()); }

// Host memory that plays a GPU's while it is registered so.
struct GpuMemory {
  explicit GpuMemory(std::size_t bytes, int value = 0xee) : data(bytes, static_cast<std::byte>(value)) {}
  gdr::MemoryRef ref() {
    gdr::MemoryRef memory = gdr::MemoryRef::host(data.data(), data.size());
    memory.kind = gdr::MemoryKind::kCuda;
    return memory;
  }
  std::vector<std::byte> data;
};

class Staged : public ::testing::Test {
 protected:
  std::unique_ptr<Transport> staged(const std::function<void(staged::Options&)>& change = {},
                                    const Clock* clock = nullptr) {
    return emulated_stage(plain_tcp(), Log([this](LogLevel level, const std::string& text) {
                            if (level == LogLevel::kWarn) warnings_ += text + "\n";
                          }),
                          change, clock);
  }
  std::unique_ptr<Transport> probed(const gdr::EmulatedCopy::Options& copies = {}, const Clock* clock = nullptr,
                                    std::uint32_t slices = 128) {
    return staged(
        [&](staged::Options& options) {
          options.make_copy = probed_copies(probe_, copies);
          options.slices = slices;
        },
        clock);
  }
  // The first part alone.
  static Request* receive_into(RecvChannel& channel, const Mr& mr, std::size_t length, int tag = 0) {
    return must_recv(channel, {{&mr, 0, length, tag}});
  }

  CopyProbe probe_;
  std::string warnings_;
};

// So many polls that no test of a request ends a copy.
inline constexpr gdr::EmulatedCopy::Options kSlow{1, 20'000, 16, 1 << 30};

// Sends by a plain transport until the copies at the receiver are under way.
inline Request* until_copies(Connection& connection, const Mr& target, CopyProbe& probe, SendBuffer& from) {
  Request* const received = must_recv(*connection.recv, {{&target, 0, from.bytes.size(), 0}});
  Request* sent = must_send(*connection.send, *from.mr, 0, from.bytes.size());
  EXPECT_TRUE(poll_until([&] {
    if (sent != nullptr && sent->test().value().done) sent = nullptr;
    EXPECT_FALSE(received->test().value().done);
    return sent == nullptr && probe.under_way > 0;
  }));
  return received;
}

// Each look at it takes 20 ms.
class HastyClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::milliseconds(20) * ++looks_); }

 private:
  mutable std::atomic<std::int64_t> looks_{0};
};

// Each look at it takes a microsecond: what needs some ten thousand polls ends in time on the busiest machine, too.
class PatientClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::microseconds(1) * ++looks_); }

 private:
  mutable std::atomic<std::int64_t> looks_{0};
};

}  // namespace clustar::transport::conformance
