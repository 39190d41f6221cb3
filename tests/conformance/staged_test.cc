// What StagedTransport promises beyond transport.h. GPU memory is emulated: host memory plays it.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "gdr/settings.h"
#include "tests/conformance/mlt_loss_bed.h"
#include "tests/conformance/staged_fixture.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/api/settings.h"
#include "transport/net/settings.h"
#include "transport/registry.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(Staged, EitherEndMayBeAPlainTransportOrHaveHostMemory) {
  for (const bool staged_sender : {true, false}) {
    for (const bool staged_receiver : {true, false}) {
      SCOPED_TRACE(std::to_string(staged_sender) + std::to_string(staged_receiver));
      const auto from = staged_sender ? staged() : plain_tcp();
      const auto to = staged_receiver ? staged() : plain_tcp();
      Connection connection = connect(*from, *to);
      for (const std::size_t size : {0ul, 1ul, 4096ul, kLong}) {
        GpuMemory source(size, static_cast<int>(size % 251));
        GpuMemory target(size);
        gdr::MemoryRef here = source.ref();
        gdr::MemoryRef there = target.ref();
        if (!staged_sender) here.kind = gdr::MemoryKind::kHost;
        if (!staged_receiver) there.kind = gdr::MemoryKind::kHost;
        const auto source_mr = std::move(connection.send->reg_mr(here).value());
        const auto target_mr = std::move(connection.recv->reg_mr(there).value());
        const auto sizes = finish(
            {receive_into(*connection.recv, *target_mr, size), must_send(*connection.send, *source_mr, 0, size)});
        EXPECT_EQ(sizes, (std::vector<std::vector<std::size_t>>{{size}, {size}}));
        EXPECT_EQ(source.data, target.data);
      }
      if (staged_sender) {
        EXPECT_THAT(from->summary(), HasSubstr("4 messages / 3149825 bytes from GPU memory"));
      }
      if (staged_receiver) {
        EXPECT_THAT(to->summary(), HasSubstr("4 requests / 3149825 bytes to it"));
      }
    }
  }
}

TEST_F(Staged, HostMemoryIsNeverCopied) {
  const auto transport = staged([](staged::Options& options) {
    options.make_copy = [](const gdr::MemoryRef&) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
      ADD_FAILURE() << "nobody registered GPU memory";
      return fail(ErrorCode::kInternal, "no copies");
    };
  });
  Connection connection = connect(*transport, *transport);
  SendBuffer from(*connection.send, kLong, 1);
  RecvBuffer to(*connection.recv, kLong);
  finish({must_recv(*connection.recv, {{to.mr.get(), 0, kLong, 0}}), must_send(*connection.send, *from.mr, 0, kLong)});
  EXPECT_EQ(from.bytes, to.bytes);
  EXPECT_THAT(transport->summary(), HasSubstr("0 messages / 0 bytes from GPU memory, 0 requests / 0 bytes to it"));
}

TEST_F(Staged, GroupsMixKindsAndMessagesKeepTheirOrder) {
  const auto transport = probed({.seed = 5, .most_polls = 9, .most_outstanding = 3}, nullptr, 12);
  Connection connection = connect(*transport, *transport);
  constexpr std::size_t kPart = 300'000;
  GpuMemory device(8 * kPart);
  std::vector<std::byte> host(8 * kPart, std::byte{0xee});
  const auto device_mr = std::move(connection.recv->reg_mr(device.ref()).value());
  const auto host_mr = std::move(connection.recv->reg_mr(gdr::MemoryRef::host(host.data(), host.size())).value());
  SendBuffer from_host(*connection.send, 64 * kPart, 1);
  GpuMemory from_device(64 * kPart);
  from_device.data = from_host.bytes;
  const auto from_device_mr = std::move(connection.send->reg_mr(from_device.ref()).value());
  for (int round = 0; round < 6; ++round) {
    std::fill(device.data.begin(), device.data.end(), std::byte{0xee});
    std::fill(host.begin(), host.end(), std::byte{0xee});
    std::vector<RecvPart> parts;
    std::vector<Request*> requests;
    for (std::size_t i = 0; i < 8; ++i) {
      parts.push_back({(i + static_cast<std::size_t>(round)) % 2 == 0 ? device_mr.get() : host_mr.get(), i * kPart,
                       kPart, i < 4 ? 1 : 2});
    }
    requests.push_back(must_recv(*connection.recv, parts));
    std::vector<std::size_t> lengths;
    for (std::size_t i = 0; i < 8; ++i) {
      lengths.push_back(i == 3 ? 0 : kPart - 1000 * i - static_cast<std::size_t>(round));
      const Mr& mr = i % 3 == 0 ? *from_device_mr : *from_host.mr;
      requests.push_back(must_send(*connection.send, mr, i * kPart, lengths[i], i < 4 ? 1 : 2));
    }
    const auto sizes = finish(requests);
    EXPECT_EQ(sizes[0], lengths) << "each message came to the receive of its turn";
    for (std::size_t i = 0; i < 8; ++i) {
      const auto& bytes = parts[i].mr == device_mr.get() ? device.data : host;
      const auto at = static_cast<long>(i * kPart);
      EXPECT_TRUE(std::equal(bytes.begin() + at, bytes.begin() + at + static_cast<long>(lengths[i]),
                             from_host.bytes.begin() + at))
          << i;
    }
  }
}

// All but one of the inner channel's requests are in host memory, and nobody asks for these.
TEST_F(Staged, WhoWaitsForOneRequestOnlyGetsOn) {
  const auto transport = staged();
  Connection connection = connect(*transport, *transport);
  GpuMemory memory(200);
  const auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  RecvBuffer host(*connection.recv, 31 * 100);
  SendBuffer from(*connection.send, 33 * 100, 1);
  for (std::size_t i = 0; i < 31; ++i) must_recv(*connection.recv, {{host.mr.get(), i * 100, 100, 0}});
  Request* const before = must_recv(*connection.recv, {{mr.get(), 0, 100, 0}});
  Request* const last = must_recv(*connection.recv, {{mr.get(), 100, 100, 0}});
  std::vector<Request*> sends;
  for (std::size_t i = 0; i < 33; ++i) sends.push_back(must_send(*connection.send, *from.mr, i * 100, 100));
  finish(sends);
  finish({last});
  finish({before});
  EXPECT_TRUE(std::equal(memory.data.begin(), memory.data.end(), from.bytes.end() - 200));
}

TEST_F(Staged, FlushIsNothingOnAGpuAndTakesSomeTestsInEmulation) {
  for (const bool emulated : {true, false}) {
    const auto transport = staged([&](staged::Options& options) { options.emulated = emulated; });
    EXPECT_EQ(transport->devices().front().force_flush, emulated);
    Connection connection = connect(*transport, *transport);
    GpuMemory memory(100);
    RecvBuffer host(*connection.recv, 100);
    const auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
    const RecvPart in_device{mr.get(), 0, 100, 0};
    const RecvPart in_host{host.mr.get(), 0, 100, 0};
    EXPECT_EQ(connection.recv->flush(std::vector<RecvPart>{in_host}).value(), nullptr);
    std::vector<Request*> flushes;
    for (int i = 0; i < 40; ++i) {
      Request* const flush = connection.recv->flush(std::vector<RecvPart>{in_host, in_device}).value();
      EXPECT_EQ(flush != nullptr, emulated);
      if (flush == nullptr) break;
      EXPECT_TRUE(std::find(flushes.begin(), flushes.end(), flush) == flushes.end()) << "it is outstanding";
      EXPECT_FALSE(flush->test().value().done);
      flushes.push_back(flush);
    }
    for (Request* const flush : flushes) {
      EXPECT_TRUE(poll_until([&] { return flush->test().value().done; }));
    }
  }
}

TEST_F(Staged, DeregisteringWaitsForTheCopiesThatUseTheMemory) {
  const PatientClock clock;
  const auto from = plain_tcp();
  const auto to = probed(kSlow, &clock);
  Connection connection = connect(*from, *to);
  GpuMemory memory(kLong);
  auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  SendBuffer source(*connection.send, kLong, 1);
  Request* const received = until_copies(connection, *mr, probe_, source);
  const std::size_t begun = probe_.under_way;
  mr.reset();
  EXPECT_EQ(probe_.under_way, 0u);
  EXPECT_EQ(probe_.ended, begun);
  const auto after = memory.data;
  const Error error = await_error(*received);
  EXPECT_EQ(error.code, ErrorCode::kInvalidUsage) << error.message;
  EXPECT_THAT(error.message, AllOf(HasSubstr("tcp, staged"), HasSubstr("deregistered while requests used it")));
  EXPECT_EQ(memory.data, after);
  EXPECT_FALSE(connection.recv->reg_mr(memory.ref())) << "the channel is broken";
}

TEST_F(Staged, AChannelThatEndsWritesNothingAfterwards) {
  const PatientClock clock;
  const auto from = plain_tcp();
  const auto to = probed(kSlow, &clock);
  Connection connection = connect(*from, *to);
  GpuMemory memory(kLong);
  const auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  SendBuffer source(*connection.send, kLong, 1);
  until_copies(connection, *mr, probe_, source);
  connection.recv.reset();
  EXPECT_EQ(probe_.objects, 0u);
  EXPECT_EQ(probe_.left_under_way, 0u);
  EXPECT_EQ(probe_.host_bytes, 0u);
  const auto after = memory.data;
  EXPECT_NE(after, source.bytes) << "it was not done";
}

TEST_F(Staged, AGpuThatIsStuckIsNotWaitedForForEver) {
  const HastyClock clock;
  const auto from = plain_tcp();
  const auto to = probed(kSlow, &clock);
  Connection connection = connect(*from, *to);
  GpuMemory memory(kLong);
  const auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  SendBuffer source(*connection.send, kLong, 1);
  until_copies(connection, *mr, probe_, source);
  probe_.stuck = true;
  connection.recv.reset();
  EXPECT_THAT(warnings_, HasSubstr("have not ended within a second; the GPU may be stuck"));
  EXPECT_GT(probe_.left_under_way, 0u);
}

TEST_F(Staged, CopiesThatDoNotEndAreNamedOnceWithWhatStandsInTheirWay) {
  const HastyClock clock;
  const auto from = plain_tcp();
  const auto to = probed(kSlow, &clock);
  Connection connection = connect(*from, *to);
  GpuMemory memory(kLong);
  const auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  SendBuffer source(*connection.send, kLong, 1);
  Request* const received = until_copies(connection, *mr, probe_, source);
  EXPECT_EQ(warnings_, "");
  probe_.stuck = true;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(received->test().value().done);
  EXPECT_THAT(warnings_, HasSubstr("have not ended for 10 s"));
  EXPECT_THAT(warnings_, HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS"));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 1) << warnings_;
  probe_.stuck = false;
}

TEST_F(Staged, WhatWasGivenUpIsNotAskedForAgain) {
  const HastyClock clock;
  const auto from = plain_tcp();
  const auto to = probed(kSlow, &clock);
  Connection connection = connect(*from, *to);
  GpuMemory memory(kLong);
  auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  SendBuffer source(*connection.send, kLong, 1);
  Request* const received = until_copies(connection, *mr, probe_, source);
  probe_.stuck = true;
  mr.reset();
  probe_.stuck = false;
  const auto after = memory.data;
  const std::size_t ended = probe_.ended;
  EXPECT_EQ(await_error(*received).code, ErrorCode::kInvalidUsage);
  connection.recv.reset();
  EXPECT_EQ(probe_.ended, ended);
  EXPECT_EQ(memory.data, after) << "the emulation moves bytes when it is asked";
}

TEST_F(Staged, AnErrorOfTheCopiesEndsEveryRequestOfTheChannelAndIsToldOnce) {
  const auto from = plain_tcp();
  const auto to = probed(kSlow);
  Connection connection = connect(*from, *to);
  GpuMemory memory(kLong);
  const auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  SendBuffer source(*connection.send, kLong, 1);
  Request* const first = until_copies(connection, *mr, probe_, source);
  Request* const second = receive_into(*connection.recv, *mr, kLong);
  probe_.fails = true;
  for (Request* const request : {first, second}) {
    const Error error = await_error(*request);
    EXPECT_EQ(error.code, ErrorCode::kSystem);
    EXPECT_THAT(error.message, HasSubstr("fallen off the bus"));
  }
  EXPECT_FALSE(connection.recv->recv(std::vector<RecvPart>{{mr.get(), 0, 10, 0}}));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 1) << warnings_;
}

// What began may still be under way: the caller that takes the memory back must know.
TEST_F(Staged, AfterAnErrorOfTheCopiesDeregisteringStillWaitsForThoseUnderWay) {
  for (const bool dead : {false, true}) {
    SCOPED_TRACE(dead);
    CopyProbe probe;
    const auto from = plain_tcp();
    const PatientClock clock;
    const auto to = staged([&](staged::Options& options) { options.make_copy = probed_copies(probe, kSlow); }, &clock);
    Connection connection = connect(*from, *to);
    GpuMemory memory(kLong);
    auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
    SendBuffer source(*connection.send, kLong, 1);
    Request* const received = until_copies(connection, *mr, probe, source);
    const std::size_t begun = probe.under_way;
    const std::size_t ended = probe.ended;
    (dead ? probe.dead : probe.fails) = true;
    EXPECT_THAT(await_error(*received).message, HasSubstr("fallen off the bus"));
    EXPECT_EQ(probe.under_way, begun);
    mr.reset();
    EXPECT_EQ(probe.under_way, dead ? begun : 0) << "in a dead context nothing moves any more";
    EXPECT_EQ(probe.ended, ended + (dead ? 0 : begun));
    const auto after = memory.data;
    probe.dead = false;
    connection.recv.reset();
    EXPECT_EQ(memory.data, after);
  }
  EXPECT_THAT(warnings_, Not(HasSubstr("have not ended within a second")));
}

TEST_F(Staged, WhatArrivedBeforeThePeerClosedIsStillCopied) {
  const auto from = plain_tcp();
  const auto to = probed({.seed = 2, .most_polls = 500});
  Connection connection = connect(*from, *to);
  GpuMemory memory(2 * kLong);
  const auto mr = std::move(connection.recv->reg_mr(memory.ref()).value());
  SendBuffer source(*connection.send, kLong, 1);
  Request* const first = until_copies(connection, *mr, probe_, source);
  Request* const second = must_recv(*connection.recv, {{mr.get(), kLong, kLong, 0}});
  connection.send.reset();
  EXPECT_EQ(await_error(*second).code, ErrorCode::kRemote);
  EXPECT_EQ(finish({first})[0], std::vector<std::size_t>{kLong});
  EXPECT_TRUE(std::equal(source.bytes.begin(), source.bytes.end(), memory.data.begin()));
}

class StagedLoss : public MltLossBed {};

TEST_F(StagedLoss, WhatTheNetworkLostReadsAsZeroInGpuMemory) {
  const auto from = emulated_stage(create({.wrap = faults("loss=0.02")}), Log());
  const auto to = emulated_stage(create({}), Log());
  std::vector<Connection> channels;
  for (int i = 0; i < 2; ++i) channels.push_back(connect(*from, *to, kOptedIn));
  set_memory_under_test(gdr::MemoryKind::kCuda);
  const Came came = run(channels, 32, kMiB, {.loss = one_percent_of(32 * kMiB)});
  set_memory_under_test(gdr::MemoryKind::kHost);
  EXPECT_GT(came.missing, 0u);
  EXPECT_EQ(came.not_zero, 0u);
  EXPECT_EQ(came.different, 0u);
  EXPECT_EQ(count(to->summary(), " bytes missing"), came.missing);
  EXPECT_THAT(to->summary(), HasSubstr("32 requests / 33554432 bytes to it"));
}

class StagedRegistry : public ::testing::Test {
 protected:
  Result<Selection> select(const std::string& gdr, bool emulate, const std::string& transport = "tcp") {
    warnings_.clear();
    Config config;
    config.edit<TransportSettings>()->transport = transport;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    config.edit<GdrSettings>()->gdr = gdr;
    config.edit<GdrSettings>()->emulate = emulate;
    return select_transport({config, clock_, Log([this](LogLevel level, const std::string& text) {
                               const std::lock_guard lock(mutex_);
                               if (level == LogLevel::kWarn) warnings_.push_back(text);
                             })});
  }

  SystemClock clock_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

TEST_F(StagedRegistry, EmulationOffersGpuMemoryAndSaysSo) {
  for (const char* transport : {"tcp", "mlt"}) {
    const auto selected = select("auto", true, transport);
    ASSERT_TRUE(selected) << selected.error().message;
    const DeviceProperties& device = selected->transport->devices().front();
    EXPECT_EQ(device.memory_kinds, gdr::kAnyKind);
    EXPECT_EQ(device.gdr, "emulated: host memory plays GPU memory");
    EXPECT_TRUE(device.force_flush);
    EXPECT_EQ(device.may_lose, std::string(transport) == "mlt") << "all else is the inner transport's";
    EXPECT_EQ(selected->transport->name(), transport + std::string("+staged"));
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_THAT(warnings_[0], AllOf(HasSubstr("CLUSTAR_GDR_EMULATE=1"), HasSubstr("never with real GPU memory")));
    Connection connection = connect(*selected->transport, *selected->transport);
    GpuMemory memory(1000, 1);
    const auto mr = std::move(connection.send->reg_mr(memory.ref()).value());
    RecvBuffer to(*connection.recv, 1000);
    finish({must_recv(*connection.recv, {{to.mr.get(), 0, 1000, 0}}), must_send(*connection.send, *mr, 0, 1000)});
    EXPECT_EQ(to.bytes, memory.data);
  }
}

TEST_F(StagedRegistry, WithoutItNothingIsWrappedAndTheReasonIsGiven) {
  for (const char* gdr : {"auto", "off"}) {
    for (const char* transport : {"tcp", "mlt"}) {
      const auto selected = select(gdr, gdr == std::string("off"), transport);
      ASSERT_TRUE(selected) << selected.error().message;
      const DeviceProperties& device = selected->transport->devices().front();
      EXPECT_EQ(device.memory_kinds, gdr::kHostOnly);
      EXPECT_THAT(device.gdr, AllOf(StartsWith("off: "), Not(HasSubstr("\n"))));
      EXPECT_FALSE(device.force_flush);
      EXPECT_STREQ(selected->transport->name(), transport);
      EXPECT_TRUE(warnings_.empty());
    }
  }
}

// Where there is no GPU, that is what is said.
TEST_F(StagedRegistry, StagedWithoutCopiesIsRefusedWithTheReason) {
  const auto refused = select("staged", false);
  if (refused) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("CLUSTAR_GDR=staged"), HasSubstr("cuda"), HasSubstr("CLUSTAR_GDR=auto does without")));
}

}  // namespace
}  // namespace clustar::transport::conformance
