// Ranks that join and leave, in threads: sums over those who are in, bit for bit.
#include "paraexpress/elastic/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "paraexpress/elastic/invitation.h"
#include "tests/paraexpress/elastic_workers.h"
#include "transport/base/rng.h"
#include "transport/rendezvous/door.h"

namespace clustar::paraexpress {
namespace {

using bench::proxy::Bootstrap;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using transport::conformance::TransportUnderTest;

// Ranks in threads of this process.
class Group {
 public:
  explicit Group(const TransportUnderTest& which) : which_(which), root_(Bootstrap::pick_loopback_root().value()) {}
  ~Group() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& root() const { return root_; }
  void start(std::uint32_t ranks) {
    for (Member rank = 0; rank < ranks; ++rank) {
      begin(rank, [this, rank, ranks](transport::Transport& transport) {
        return first(transport, rank, ranks, elastic_options(root_));
      });
    }
  }
  void join(std::uint64_t id) {
    begin(id, [this](transport::Transport& transport) {
      return Elastic::join(transport, elastic_options(root_), {root_}, kLong);
    });
  }
  void leave(std::uint64_t id) { leaving_[id] = true; }
  void stop() { stop_ = true; }
  // Those are in, and nobody else, as each of them sees it.
  bool become(const std::set<std::uint64_t>& ids) {
    const auto until = steady_clock::now() + kLong;
    while (steady_clock::now() < until) {
      {
        const std::lock_guard lock(mutex_);
        std::set<std::uint64_t> in;
        bool same = true;
        for (const auto& [id, seen] : seen_) {
          in.insert(id);
          same = same && seen == ids;
        }
        if (same && in == ids) return true;
        if (!errors_.empty()) return false;
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
    return false;
  }
  std::vector<std::string> errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }

 private:
  void begin(std::uint64_t id, const std::function<Result<std::unique_ptr<Elastic>>(transport::Transport&)>& make) {
    threads_.emplace_back([this, id, make] {
      if (const auto ok = work(id, make); !ok) {
        const std::lock_guard lock(mutex_);
        errors_.push_back(ok.error().message);
      }
      const std::lock_guard lock(mutex_);
      seen_.erase(id);
    });
  }
  Result<void> work(std::uint64_t id,
                    const std::function<Result<std::unique_ptr<Elastic>>(transport::Transport&)>& make) {
    const auto transport = which_.create({});
    if (!transport) return tl::unexpected(transport.error());
    const auto elastic = make(**transport);
    if (!elastic) return tl::unexpected(elastic.error());
    Worker worker(**elastic, id);
    if (const auto ok = worker.add_memory(); !ok) return ok;
    for (;;) {
      if (const auto ok = worker.step(stop_); !ok) return ok;
      {
        const std::lock_guard lock(mutex_);
        seen_[id] = {worker.in.begin(), worker.in.end()};
      }
      if (worker.stopped) break;
      if (leaving_[id]) return (*elastic)->leave();
      if (const auto resized = (*elastic)->resize(); !resized) return tl::unexpected(resized.error());
    }
    (*elastic)->close();
    return {};
  }

  const TransportUnderTest which_;
  const std::string root_;
  std::atomic<bool> stop_{false};
  std::array<std::atomic<bool>, kMostIds> leaving_{};
  std::mutex mutex_{};
  std::map<std::uint64_t, std::set<std::uint64_t>> seen_{};
  std::vector<std::string> errors_{};
  std::vector<std::thread> threads_{};
};

class ElasticOver : public testing::TestWithParam<TransportUnderTest> {};

TEST_P(ElasticOver, OneJoinsRankZeroLeavesOneIsAloneOneJoins) {
  Group group(GetParam());
  group.start(2);
  ASSERT_TRUE(group.become({0, 1})) << testing::PrintToString(group.errors());
  group.join(2);
  ASSERT_TRUE(group.become({0, 1, 2})) << testing::PrintToString(group.errors());
  group.leave(0);
  ASSERT_TRUE(group.become({1, 2})) << testing::PrintToString(group.errors());
  // The next rank 0 has the door.
  group.join(3);
  ASSERT_TRUE(group.become({1, 2, 3})) << testing::PrintToString(group.errors());
  group.leave(1);
  group.leave(3);
  ASSERT_TRUE(group.become({2})) << testing::PrintToString(group.errors());
  group.join(4);
  group.join(5);
  ASSERT_TRUE(group.become({2, 4, 5})) << testing::PrintToString(group.errors());
  group.leave(2);
  group.join(6);
  ASSERT_TRUE(group.become({4, 5, 6})) << testing::PrintToString(group.errors());
  group.stop();
  ASSERT_TRUE(group.become({})) << testing::PrintToString(group.errors());
}

TEST_P(ElasticOver, AtRandom) {
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Group group(GetParam());
    group.start(2);
    std::set<std::uint64_t> in{0, 1};
    std::uint64_t next = 2;
    while (next < 9) {
      if (in.size() > 1 && rng.below(2) == 0) {
        const auto one = std::next(in.begin(), static_cast<std::ptrdiff_t>(rng.below(in.size())));
        group.leave(*one);
        in.erase(one);
      }
      for (std::uint64_t i = 0; i < 1 + rng.below(2); ++i) {
        group.join(next);
        in.insert(next++);
      }
      std::this_thread::sleep_for(milliseconds(rng.below(30)));
      if (rng.below(2) == 0) {
        ASSERT_TRUE(group.become(in)) << testing::PrintToString(group.errors());
      }
    }
    ASSERT_TRUE(group.become(in)) << testing::PrintToString(group.errors());
    group.stop();
    ASSERT_TRUE(group.become({})) << testing::PrintToString(group.errors());
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ElasticOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front()),
                         [](const auto& which) { return which.param.name; });

TEST(Elastic, WhatCannotBeDoneSaysWhatIsAllowed) {
  const auto transport = transport::conformance::tcp_under_test().front().create({});
  ASSERT_TRUE(transport);
  const auto alone = [&](ElasticOptions options) { return first(**transport, 0, 1, std::move(options)); };
  ElasticOptions options = elastic_options(Bootstrap::pick_loopback_root().value());
  options.engine.plan.reset();
  options.engine.regions = "a ranks=0\n";
  const auto mapped = alone(options);
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_THAT((*mapped)->resize().error().message, HasSubstr("allowed: no helpers, and regions empty or 'probe'"));
  ElasticOptions short_stall = elastic_options(Bootstrap::pick_loopback_root().value());
  short_stall.engine.stall = milliseconds(4500);
  const auto hasty = alone(short_stall);
  ASSERT_TRUE(hasty) << hasty.error().message;
  EXPECT_THAT((*hasty)->resize().error().message, HasSubstr("a stall time of 4.5 s; allowed: 5 s or more"));
  const auto nobody = Elastic::join(**transport, {}, {options.door}, milliseconds(50));
  ASSERT_FALSE(nobody);
  EXPECT_THAT(nobody.error().message, HasSubstr("nobody listens at " + options.door));
  EXPECT_THAT(Elastic::join(**transport, {}, {}, milliseconds(50)).error().message, HasSubstr("one address"));
  // Rank 0 is there, but does not resize.
  const auto door = rendezvous::Door::at(options.door);
  ASSERT_TRUE(door);
  const auto unheard = Elastic::join(**transport, {}, {options.door}, milliseconds(50));
  ASSERT_FALSE(unheard);
  EXPECT_THAT(unheard.error().message, HasSubstr("when all ranks call resize()"));
  // Where the port is somebody else's.
  options.engine.regions.clear();
  const auto shut = alone(options);
  ASSERT_TRUE(shut);
  for (int i = 0; i < 2; ++i) {
    const auto resized = (*shut)->resize();
    ASSERT_TRUE(resized) << resized.error().message;
    EXPECT_THAT(resized->shut, HasSubstr("where newcomers would knock: rank 0 cannot listen on " + options.door));
  }
}

// A child that a loader has forked has the door's descriptors: it holds neither the port nor who waits.
TEST(Elastic, AForkedChildDoesNotHoldTheDoor) {
  const std::string root = Bootstrap::pick_loopback_root().value();
  const auto soon = steady_clock::now() + kLong;
  auto door = rendezvous::Door::at(root);
  ASSERT_TRUE(door);
  const auto line = rendezvous::knock(root, soon);
  ASSERT_TRUE(line);
  while ((*door)->waiting() == 0 && steady_clock::now() < soon) std::this_thread::sleep_for(milliseconds(1));
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(kLong.count()));
    pause();
    _exit(0);
  }
  door->reset();
  EXPECT_THAT(line->hear(1, soon).error().message, HasSubstr("it closed its connection"));
  EXPECT_TRUE(rendezvous::Door::at(root));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// It can listen no more while `full`, as where descriptors are used up.
class FullTransport final : public transport::Transport {
 public:
  explicit FullTransport(std::unique_ptr<transport::Transport> within) : within_(std::move(within)) {}
  const char* name() const override { return within_->name(); }
  std::span<const transport::DeviceProperties> devices() const override { return within_->devices(); }
  Result<std::unique_ptr<transport::Listener>> listen(int device, const transport::ChannelOptions& options) override {
    if (full) return fail(ErrorCode::kSystem, "too many open files");
    return within_->listen(device, options);
  }
  Result<std::unique_ptr<transport::PendingConnect>> connect(int device, const transport::Handle& handle,
                                                             const transport::ChannelOptions& options) override {
    return within_->connect(device, handle, options);
  }
  transport::Counters counters() const override { return within_->counters(); }

  std::atomic<bool> full{false};

 private:
  const std::unique_ptr<transport::Transport> within_;
};

TEST(Elastic, AMemberThatCannotGoAlongKeepsNewcomersOutAndNothingElse) {
  const std::string root = Bootstrap::pick_loopback_root().value();
  const auto member = [&](Member rank) {
    FullTransport transport(transport::conformance::tcp_under_test().front().create({}).value());
    const auto elastic = first(transport, rank, 2, elastic_options(root));
    ASSERT_TRUE(elastic) << elastic.error().message;
    transport.full = rank == 1;
    std::uint32_t refused = 0;
    for (std::uint32_t joined = 0; joined == 0;) {
      const auto resized = (*elastic)->resize();
      ASSERT_TRUE(resized) << resized.error().message;
      refused += resized->refused;
      joined = resized->joined;
      if (refused == 2) transport.full = false;
    }
    EXPECT_EQ(refused, 2U);
    (*elastic)->close();
  };
  std::thread zero([&] { member(0); }), one([&] { member(1); });
  const auto transport = transport::conformance::tcp_under_test().front().create({});
  const auto joined = Elastic::join(**transport, elastic_options(root), {root}, kLong);
  EXPECT_TRUE(joined) << joined.error().message;
  if (joined) (*joined)->close();
  zero.join();
  one.join();
}

// Its sender takes a message once in a while only.
class LateTransport final : public transport::Transport {
 public:
  LateTransport(std::unique_ptr<transport::Transport> within, milliseconds pause)
      : within_(std::move(within)), pause_(pause) {}
  const char* name() const override { return within_->name(); }
  std::span<const transport::DeviceProperties> devices() const override { return within_->devices(); }
  Result<std::unique_ptr<transport::Listener>> listen(int device, const transport::ChannelOptions& options) override {
    return within_->listen(device, options);
  }
  Result<std::unique_ptr<transport::PendingConnect>> connect(int device, const transport::Handle& handle,
                                                             const transport::ChannelOptions& options) override {
    auto pending = within_->connect(device, handle, options);
    if (!pending) return pending;
    return std::make_unique<Pending>(std::move(*pending), pause_);
  }
  transport::Counters counters() const override { return within_->counters(); }

 private:
  class Sender final : public transport::SendChannel {
   public:
    Sender(std::unique_ptr<transport::SendChannel> within, milliseconds pause)
        : within_(std::move(within)), pause_(pause) {}
    Result<std::unique_ptr<transport::Mr>> reg_mr(const gdr::MemoryRef& memory) override {
      return within_->reg_mr(memory);
    }
    Result<transport::Request*> send(const transport::Mr& mr, std::size_t offset, std::size_t length, int tag,
                                     const transport::FlowTag& flow) override {
      if (steady_clock::now() < next_) return nullptr;
      auto request = within_->send(mr, offset, length, tag, flow);
      if (request && *request != nullptr) next_ = steady_clock::now() + pause_;
      return request;
    }

   private:
    const std::unique_ptr<transport::SendChannel> within_;
    const milliseconds pause_;
    steady_clock::time_point next_ = steady_clock::now() + pause_;
  };
  class Pending final : public transport::PendingConnect {
   public:
    Pending(std::unique_ptr<transport::PendingConnect> within, milliseconds pause)
        : within_(std::move(within)), pause_(pause) {}
    Result<std::unique_ptr<transport::SendChannel>> poll() override {
      auto channel = within_->poll();
      if (!channel || *channel == nullptr) return channel;
      return std::make_unique<Sender>(std::move(*channel), pause_);
    }

   private:
    const std::unique_ptr<transport::PendingConnect> within_;
    const milliseconds pause_;
  };

  const std::unique_ptr<transport::Transport> within_;
  const milliseconds pause_;
};

// Each of its messages comes just before it would be given up, so only their time in all keeps it out.
TEST(Elastic, ANewcomerThatIsLateAtEachStepIsRefused) {
  const std::string root = Bootstrap::pick_loopback_root().value();
  std::latch met(2);
  const auto member = [&](Member rank) {
    const auto transport = transport::conformance::tcp_under_test().front().create({});
    const auto elastic = first(**transport, rank, 2, elastic_options(root));
    met.count_down();
    ASSERT_TRUE(elastic) << elastic.error().message;
    for (std::uint32_t refused = 0; refused == 0;) {
      const auto resized = (*elastic)->resize();
      ASSERT_TRUE(resized) << resized.error().message;
      ASSERT_EQ(resized->joined, 0U);
      refused = resized->refused;
    }
    (*elastic)->close();
  };
  std::thread zero([&] { member(0); }), one([&] { member(1); });
  const ElasticOptions options = elastic_options(root);
  LateTransport transport(transport::conformance::tcp_under_test().front().create({}).value(),
                          std::chrono::duration_cast<milliseconds>(options.patience * 2 / 3));
  met.wait();
  const auto joined = Elastic::join(transport, options, {root}, std::chrono::seconds(1));
  EXPECT_FALSE(joined);
  zero.join();
  one.join();
}

TEST(Elastic, WhatWasPushedIsPulledFirst) {
  const auto transport = transport::conformance::tcp_under_test().front().create({});
  ASSERT_TRUE(transport);
  const auto alone = first(**transport, 0, 1, elastic_options(Bootstrap::pick_loopback_root().value()));
  ASSERT_TRUE(alone);
  std::vector<float> values(10, 1.0F);
  ASSERT_TRUE((*alone)->add_memory(values.data(), values.size() * sizeof(float)));
  ASSERT_TRUE((*alone)->engine()->push(values.data(), values.size(), DataType::kFloat32)->wait());
  EXPECT_THAT((*alone)->resize().error().message, HasSubstr("pushed and not pulled"));
}

TEST(Elastic, AnInvitationIsReadAsItWasWritten) {
  EngineOptions options;
  options.plan = Plan::kRing;
  options.regions = kProbeRegions;
  options.setup = std::chrono::seconds(2);
  const std::vector<std::byte> bytes = encode_invitation({7, 2, 3}, options);
  const auto read = invited(bytes, {});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->epoch, 7U);
  EXPECT_EQ(read->rank, 2U);
  EXPECT_EQ(read->ranks, 3U);
  EXPECT_EQ(read->plan, Plan::kRing);
  EXPECT_EQ(read->regions, kProbeRegions);
  EXPECT_EQ(read->setup, options.setup);
  options.setup = options.stall = Duration::max();
  const auto endless = invited(encode_invitation({7, 2, 3}, options), {});
  ASSERT_TRUE(endless);
  EXPECT_EQ(endless->setup, kMostSetup);
  EXPECT_EQ(endless->stall, kMostStall);
  EXPECT_FALSE(invited(std::span(bytes).first(bytes.size() - 1), {}));
  EXPECT_FALSE(invited(encode_invitation({7, 3, 3}, options), {}));
  EXPECT_FALSE(invited(encode_invitation({7, 0, kMostRanks + 1}, options), {}));
}

}  // namespace
}  // namespace clustar::paraexpress
