// The host memory of StagedTransport: when it is made, how much it is, and what a request may need of it.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/conformance/staged_fixture.h"
#include "transport/base/rng.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::HasSubstr;

TEST_F(Staged, ManyMessagesNeedNoMoreMemoryThanTheArena) {
  const auto from = probed();
  const auto to = plain_tcp();
  constexpr std::size_t kArena = 128 * 128 * 1024;
  constexpr std::size_t kMessages = 40;
  {
    Connection connection = connect(*from, *to);
    // Each message begins elsewhere, so that each brings other bytes.
    GpuMemory source(kLong + kMessages);
    Rng rng(3);
    std::generate(source.data.begin(), source.data.end(), [&] { return static_cast<std::byte>(rng.next()); });
    RecvBuffer target(*connection.recv, kLong);
    const auto mr = std::move(connection.send->reg_mr(source.ref()).value());
    EXPECT_EQ(probe_.host_bytes, kArena + 64) << "made when memory is registered, not while data moves";
    std::vector<Request*> requests;
    for (std::size_t i = 0; i < kMessages; ++i) requests.push_back(must_send(*connection.send, *mr, i, kLong));
    for (std::size_t i = 0; i < kMessages; ++i) {
      std::fill(target.bytes.begin(), target.bytes.end(), std::byte{0});
      finish({must_recv(*connection.recv, {{target.mr.get(), 0, kLong, 0}}), requests[i]});
      ASSERT_TRUE(std::equal(target.bytes.begin(), target.bytes.end(), source.data.begin() + static_cast<long>(i)));
    }
    EXPECT_EQ(probe_.most_host_bytes, kArena + 64);
  }
  EXPECT_EQ(probe_.host_bytes, 0u);
  EXPECT_EQ(probe_.objects, 0u);
}

// Pinned memory that is made or freed behind NCCL's kernel waits for it forever.
TEST_F(Staged, HostMemoryIsMadeWhenMemoryIsRegisteredAndStaysUntilTheChannelEnds) {
  const auto transport = probed({}, nullptr, 2);
  constexpr std::size_t kSlice = 128 * 1024;
  constexpr std::size_t kNothing = 64;
  {
    Connection connection = connect(*transport, *transport);
    GpuMemory small(100, 1);
    GpuMemory source(kLong, 2);
    GpuMemory target(kLong);
    const auto small_mr = std::move(connection.send->reg_mr(small.ref()).value());
    EXPECT_EQ(probe_.host_bytes, 2 * kSlice + kNothing);
    const auto target_mr = std::move(connection.recv->reg_mr(target.ref()).value());
    const std::size_t of_recv = (24 + 7) * kSlice + kNothing;
    EXPECT_EQ(probe_.host_bytes, 2 * kSlice + kNothing + of_recv) << "each of a request's parts may begin a slice";
    // The small arena is in use when the larger one is made: it goes on, and the next message needs the larger one.
    Request* const before = must_send(*connection.send, *small_mr, 0, 100);
    const auto source_mr = std::move(connection.send->reg_mr(source.ref()).value());
    const std::size_t all = (2 + 24) * kSlice + kNothing + of_recv;
    EXPECT_EQ(probe_.host_bytes, all) << "the smaller one stays";
    probe_.refuses_more = true;
    Request* const large = must_send(*connection.send, *source_mr, 0, kLong);
    finish({receive_into(*connection.recv, *target_mr, 100), before});
    EXPECT_TRUE(std::equal(small.data.begin(), small.data.end(), target.data.begin()));
    finish({receive_into(*connection.recv, *target_mr, kLong), large});
    EXPECT_EQ(source.data, target.data);
    std::fill(target.data.begin(), target.data.end(), std::byte{0xee});
    finish({receive_into(*connection.recv, *target_mr, kLong), must_send(*connection.send, *source_mr, 0, kLong)});
    EXPECT_EQ(source.data, target.data);
    EXPECT_EQ(probe_.made, 5u) << "two for each end, and the sender's larger arena";
    EXPECT_EQ(probe_.host_bytes, all);
    // As much again needs no more: it is not registered at the same time.
    for (int i = 0; i < 10; ++i) {
      GpuMemory more(kLong);
      EXPECT_TRUE(connection.send->reg_mr(more.ref()));
    }
    EXPECT_THAT(transport->summary(), HasSubstr("2 larger arenas"));
  }
  EXPECT_EQ(probe_.host_bytes, 0u);
}

TEST_F(Staged, ARequestThatIsTooLongIsRefusedAndTheChannelGoesOn) {
  const auto transport = staged([&](staged::Options& options) {
    options.make_copy = probed_copies(probe_);
    options.slice_bytes = 4096;
    options.slices = 2;
    options.most_bytes = 100'000;
  });
  Connection connection = connect(*transport, *transport);
  GpuMemory source(200'000, 1);
  GpuMemory target(200'000);
  const auto source_mr = std::move(connection.send->reg_mr(source.ref()).value());
  const auto target_mr = std::move(connection.recv->reg_mr(target.ref()).value());
  EXPECT_EQ(probe_.host_bytes, (25 + 25 + 7) * 4096u + 2 * 64) << "no more than a request may need";
  const auto refused = [](const auto& result, const std::string& why) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr(why));
  };
  const std::string limit = "at most 100000 bytes are allowed";
  refused(connection.send->send(*source_mr, 0, 100'001, 0, {}), limit);
  refused(connection.send->send(*source_mr, 150'000, 50'001, 0, {}), "200000 bytes of it are registered");
  refused(connection.send->send(*source_mr, 200'001, 0, 0, {}), "200000 bytes of it are registered");
  refused(connection.recv->recv(std::vector<RecvPart>{{target_mr.get(), 0, 100'001, 0}}), limit);
  refused(connection.recv->recv(
              std::vector<RecvPart>{{target_mr.get(), 0, 50'000, 0}, {target_mr.get(), 50'000, 50'001, 1}}),
          limit);
  // As much as is allowed, however it lies in slices.
  std::vector<RecvPart> parts;
  for (std::size_t i = 0; i < 8; ++i) parts.push_back({target_mr.get(), i * 12'500, 12'500, static_cast<int>(i)});
  std::vector<Request*> requests{must_recv(*connection.recv, parts)};
  for (std::size_t i = 0; i < 8; ++i) {
    requests.push_back(must_send(*connection.send, *source_mr, i * 12'500, 12'500, static_cast<int>(i)));
  }
  finish(requests);
  EXPECT_TRUE(std::equal(source.data.begin(), source.data.begin() + 100'000, target.data.begin()));
  finish({receive_into(*connection.recv, *target_mr, 100'000), must_send(*connection.send, *source_mr, 0, 100'000)});
  EXPECT_EQ(warnings_, "");
}

// The inner transport's own limit is above what is staged: it has such a message itself, or refuses it.
TEST_F(Staged, LongMessagesOfHostMemoryWaitUntilNothingStagedIsBeforeThem) {
  const auto transport = staged([](staged::Options& options) { options.most_bytes = 1000; });
  Connection connection = connect(*transport, *transport);
  GpuMemory device(1000, 1);
  SendBuffer host(*connection.send, kLong, 2);
  RecvBuffer to(*connection.recv, kLong + 1000);
  const auto mr = std::move(connection.send->reg_mr(device.ref()).value());
  Request* const first = must_recv(*connection.recv, {{to.mr.get(), 0, 1000, 0}});
  Request* const second = must_recv(*connection.recv, {{to.mr.get(), 1000, kLong, 0}});
  Request* const staged_one = must_send(*connection.send, *mr, 0, 1000);
  finish({first, second, staged_one, must_send(*connection.send, *host.mr, 0, kLong)});
  EXPECT_TRUE(std::equal(device.data.begin(), device.data.end(), to.bytes.begin()));
  EXPECT_TRUE(std::equal(host.bytes.begin(), host.bytes.end(), to.bytes.begin() + 1000));
}

TEST_F(Staged, WithoutHostMemoryNothingIsRegisteredAndAfterwardsItIs) {
  const auto transport = probed();
  Connection connection = connect(*transport, *transport);
  GpuMemory memory(100, 9);
  probe_.refuses_more = true;
  const auto refused = connection.send->reg_mr(memory.ref());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("can be pinned"));
  probe_.refuses_more = false;
  const auto mr = std::move(connection.send->reg_mr(memory.ref()).value());
  RecvBuffer to(*connection.recv, 100);
  finish({must_recv(*connection.recv, {{to.mr.get(), 0, 100, 0}}), must_send(*connection.send, *mr, 0, 100)});
  EXPECT_EQ(to.bytes, memory.data);
}

TEST_F(Staged, AnArenaThatCannotGrowIsAnErrorOfTheRegistrationAlone) {
  const auto transport = probed({}, nullptr, 2);
  Connection connection = connect(*transport, *transport);
  GpuMemory memory(kLong, 9);
  GpuMemory small(100, 8);
  const auto mr = std::move(connection.send->reg_mr(small.ref()).value());
  probe_.refuses_more = true;
  const auto refused = connection.send->reg_mr(memory.ref());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("can be pinned"));
  GpuMemory other(200'000);
  EXPECT_TRUE(connection.send->reg_mr(other.ref())) << "what was refused is not counted";
  RecvBuffer to(*connection.recv, 100);
  finish({must_recv(*connection.recv, {{to.mr.get(), 0, 100, 0}}), must_send(*connection.send, *mr, 0, 100)});
  EXPECT_EQ(to.bytes, small.data);
}

}  // namespace
}  // namespace clustar::transport::conformance
