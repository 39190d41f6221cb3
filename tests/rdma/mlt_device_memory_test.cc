// MLT over UD and UC with emulated device memory (CLUSTAR_GDR_EMULATE): the NIC writes, zeroes and flushes it, and the
// processor dies of touching it.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gdr/settings.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/device_memory.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/link.h"
#include "transport/base/rng.h"
#include "transport/base/system_clock.h"
#include "transport/io/verbs/verbs_backend.h"
#include "transport/net/settings.h"

namespace clustar::tests {
namespace {

using namespace transport::conformance;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = gdr::MemoryKind;

struct PinnedBuffer {
  template <class Channel>
  PinnedBuffer(Channel& channel, std::size_t size, Kind kind, unsigned seed = 0) : memory(size) {
    fill(seed);
    memory.touchable(true);
    auto made = channel.reg_mr(memory.ref(kind));
    memory.touchable(false);
    EXPECT_TRUE(made) << made.error().message;
    if (made) mr = std::move(*made);
  }
  void fill(unsigned seed) {
    Rng rng(seed);
    for (std::byte& byte : memory.bytes()) byte = seed == 0 ? std::byte{0xee} : static_cast<std::byte>(rng.next());
  }
  DeviceMemory memory;
  std::unique_ptr<transport::Mr> mr;
};

class MltOverCableDeviceMemory : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_devices(); !reason.empty()) GTEST_SKIP() << reason;
    from = make("=va");
    to = make("=vb");
    ASSERT_TRUE(from && to);
  }
  static std::unique_ptr<transport::Transport> make(const std::string& interface, const std::string& gdr = "auto") {
    static const SystemClock clock;
    Config config;
    config.edit<NetworkSettings>()->interfaces = interface;
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<MltSettings>()->engine = "auto";
    config.edit<GdrSettings>()->gdr = gdr;
    config.edit<GdrSettings>()->emulate = true;
    using transport::io::verbs::VerbsBackend;
    const auto kind = GetParam() == "uc" ? VerbsBackend::Kind::kUc : VerbsBackend::Kind::kUd;
    auto backend = VerbsBackend::create(kind, config, Log());
    EXPECT_TRUE(backend) << backend.error().message;
    if (!backend) return nullptr;
    auto made = mlt::driver::MltTransport::create({config, clock}, std::move(*backend));
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }
  // A message and its flush, compared as soon as that is done; the bytes that are missing.
  static std::size_t exchange(Connection& connection, PinnedBuffer& source, PinnedBuffer& target, std::size_t size,
                              const transport::FlowTag& flow = {}) {
    target.fill(0);
    std::vector<std::byte> expected(source.memory.bytes().begin(), source.memory.bytes().end());
    std::vector<bool> lost_here(size), lost_there(size);
    std::size_t missing = 0;
    auto* receive = must_recv(*connection.recv, {{target.mr.get(), 0, size, 0}});
    auto* send = must_send(*connection.send, *source.mr, 0, size, 0, flow);
    const auto end = [](transport::Request*& request, const std::function<void(const transport::MissingRange&)>& take) {
      if (request == nullptr) return;
      const auto progress = request->test();
      EXPECT_TRUE(progress) << progress.error().message;
      if (progress && !progress->done) return;
      request = nullptr;
      if (progress) std::ranges::for_each(progress->missing, take);
    };
    const auto mark = [](std::vector<bool>& bytes, const transport::MissingRange& range) {
      for (std::size_t i = 0; i < range.length; ++i) bytes.at(range.offset + i) = true;
    };
    EXPECT_TRUE(poll_until([&] {
      end(receive, [&](const transport::MissingRange& range) {
        mark(lost_here, range);
        missing += range.length;
        std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(range.offset), range.length, std::byte{0});
      });
      end(send, [&](const transport::MissingRange& range) { mark(lost_there, range); });
      return receive == nullptr && send == nullptr;
    }));
    EXPECT_EQ(lost_here, lost_there) << "the sender knows what its receiver zeroed";
    const transport::RecvPart part{target.mr.get(), 0, size, 0};
    const auto flush = connection.recv->flush(std::span(&part, 1));
    EXPECT_TRUE(flush) << flush.error().message;
    EXPECT_EQ(flush && *flush != nullptr, size > 0);
    if (flush && *flush != nullptr) finish({*flush});
    EXPECT_TRUE(std::ranges::equal(target.memory.bytes().first(size), std::span(expected).first(size))) << size;
    return missing;
  }

  std::unique_ptr<transport::Transport> from;
  std::unique_ptr<transport::Transport> to;
};

TEST_P(MltOverCableDeviceMemory, MessagesArriveThroughLossAndAreFlushed) {
  EXPECT_EQ(to->devices()[0].memory_kinds, gdr::kAnyKind);
  EXPECT_TRUE(to->devices()[0].force_flush);
  EXPECT_THAT(to->devices()[0].gdr, HasSubstr("emulated"));
  Connection connection = connect(*from, *to);
  ASSERT_TRUE(connection.send && connection.recv);
  const Netem trouble("loss 1%");
  for (const Kind kind : {Kind::kCuda, Kind::kDmaBuf}) {
    PinnedBuffer source(*connection.send, 300'003, kind, 5);
    PinnedBuffer target(*connection.recv, 300'003, kind);
    for (const std::size_t size : {0ul, 1ul, 100ul, 5000ul, 70'001ul, 300'003ul, 300'003ul}) {
      EXPECT_EQ(exchange(connection, source, target, size), 0u);
    }
  }
  std::printf("%s\n", to->summary().c_str());
  EXPECT_THAT(to->summary(), Not(HasSubstr(" 0 bytes written and")));
}

TEST_P(MltOverCableDeviceMemory, HolesAreZeroedByTheNicWhereBothEndsSay) {
  constexpr std::size_t kMessages = 16;
  constexpr std::size_t kBytes = 512 * 1024;
  Connection connection = connect(*from, *to, {.comm_id = 7, .max_tolerance_ppm = 10'000});
  ASSERT_TRUE(connection.send && connection.recv);
  transport::FlowTag flow;
  flow.loss.communicator = 7;
  flow.loss.collective = 1;
  flow.loss.collective_bytes = 4 * kMessages * kBytes;
  flow.loss.ranks = flow.loss.edges = 4;
  flow.loss.tolerance_ppm = 10'000;
  PinnedBuffer source(*connection.send, kBytes, Kind::kCuda, 9);
  PinnedBuffer target(*connection.recv, kBytes, Kind::kCuda);
  const Netem trouble("loss 2%");
  std::size_t missing = 0;
  for (std::size_t i = 0; i < kMessages; ++i) missing += exchange(connection, source, target, kBytes, flow);
  EXPECT_GT(missing, 0u);
  EXPECT_LE(missing, kMessages * kBytes / 100);
  std::printf("%zu bytes missing; %s\n", missing, to->summary().c_str());
}

TEST_P(MltOverCableDeviceMemory, WhatIsNotThereOrNotAllowedIsRefused) {
  Connection connection = connect(*from, *to);
  ASSERT_TRUE(connection.send && connection.recv);
  DeviceMemory memory(100);
  gdr::MemoryRef gone = memory.ref(Kind::kDmaBuf);
  gone.fd = 1000;
  const auto refused = connection.recv->reg_mr(gone);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("an open descriptor"));
  const auto off = make("=va", "off");
  EXPECT_EQ(off->devices()[0].memory_kinds, gdr::kHostOnly);
  EXPECT_THAT(off->devices()[0].gdr, HasSubstr("CLUSTAR_GDR=off"));
  Connection host_only = connect(*off, *to);
  ASSERT_TRUE(host_only.send);
  const auto not_now = host_only.send->reg_mr(memory.ref());
  ASSERT_FALSE(not_now);
  EXPECT_THAT(not_now.error().message, HasSubstr("CLUSTAR_GDR=off"));
}

INSTANTIATE_TEST_SUITE_P(Over, MltOverCableDeviceMemory, ::testing::Values("ud", "uc"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace clustar::tests
