// Members and newcomers in processes that die or stand still: the others go on, or all name it; no wait is without end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <new>
#include <thread>

#include "paraexpress/elastic/invitation.h"
#include "tests/child_ends.h"
#include "tests/paraexpress/elastic_workers.h"
#include "transport/rendezvous/door.h"

namespace clustar::paraexpress {
namespace {

using bench::proxy::Bootstrap;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using transport::conformance::TransportUnderTest;

// Members in children of this process, which have no threads but their own. Each gives 0 where all went well.
constexpr int kWell = 0, kNamed = 7, kOther = 9;

using Role = std::function<int(transport::Transport& transport, const std::string& root)>;

std::vector<int> in_processes(const TransportUnderTest& which, const std::vector<Role>& roles) {
  const std::string root = Bootstrap::pick_loopback_root().value();
  std::vector<pid_t> children;
  for (const Role& role : roles) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(static_cast<unsigned>(3 * kLong.count()));
    const auto transport = which.create({});
    _exit(transport ? role(**transport, root) : kOther);
  }
  return tests::ends_of(children);
}

int complain(const Error& error) {
  fprintf(stderr, "%s\n", error.message.c_str());
  return kOther;
}

// Works until so many are in, or have been; `grows`: as rank 0 it says stop then.
int work_until(Elastic& elastic, std::uint64_t id, std::uint32_t ranks, std::uint32_t refused) {
  Worker worker(elastic, id);
  if (const auto ok = worker.add_memory(); !ok) return complain(ok.error());
  std::uint32_t vain = 0;
  const auto until = steady_clock::now() + kLong;
  while (!worker.stopped) {
    if (steady_clock::now() > until) return complain({ErrorCode::kInternal, "too long"});
    if (const auto ok = worker.step(worker.in.size() == ranks && vain >= refused); !ok) return complain(ok.error());
    if (worker.stopped) break;
    const auto resized = elastic.resize();
    if (!resized) return complain(resized.error());
    vain += resized->refused;
  }
  elastic.close();
  return kWell;
}

Role member(Member rank, std::uint32_t ranks, std::uint32_t until_ranks, std::uint32_t refused) {
  return [=](transport::Transport& transport, const std::string& root) {
    const auto elastic = first(transport, rank, ranks, elastic_options(root));
    return elastic ? work_until(**elastic, rank, until_ranks, refused) : complain(elastic.error());
  };
}
Role newcomer(std::uint64_t id, std::uint32_t until_ranks) {
  return [=](transport::Transport& transport, const std::string& root) {
    const auto elastic = Elastic::join(transport, elastic_options(root), {root}, kLong);
    return elastic ? work_until(**elastic, id, until_ranks, 0) : complain(elastic.error());
  };
}

// How a newcomer ends, at each step of its way in: what it says, and whether it then dies or stands still.
struct Fate {
  const char* what;
  int step;
  bool stands_still;
};
const Fate kFates[] = {{"knocks and dies", 0, false},
                       {"dies when it is invited", 1, false},
                       {"says too little", 2, true},
                       {"says no addresses and dies", 3, false},
                       {"says no addresses and waits", 3, true},
                       {"stands still when it is invited", 1, true}};

int go_wrong(const Fate& fate, const std::string& root) {
  const auto soon = steady_clock::now() + kLong;
  if (fate.step == 0) {
    while (!rendezvous::knock(root, soon)) {
      if (steady_clock::now() > soon) return kOther;
    }
    return kWell;
  }
  const auto invitation = rendezvous::knock_at_all({root}, kMostInvitation, soon);
  if (!invitation) return kOther;
  const auto options = invited(invitation->message, {});
  if (!options) return kOther;
  const std::vector<std::byte> row(fate.step == 2 ? 8 : exchange_bytes(options->ranks));
  if (fate.step > 1 && !invitation->line.say(row, soon)) return kOther;
  // Until the members give it up.
  if (fate.stands_still) (void)invitation->line.hear(1, soon);
  return kWell;
}

class ElasticLossOver : public testing::TestWithParam<TransportUnderTest> {};

TEST_P(ElasticLossOver, ANewcomerThatGoesWrongAtAnyStepHurtsNobody) {
  for (const Fate& fate : kFates) {
    SCOPED_TRACE(fate.what);
    const std::uint32_t vain = fate.step == 0 ? 0 : 1;
    // Who comes behind it gets in.
    const auto ends =
        in_processes(GetParam(), {member(0, 2, 3, vain), member(1, 2, 3, vain),
                                  [&](transport::Transport&, const std::string& root) { return go_wrong(fate, root); },
                                  [&](transport::Transport& transport, const std::string& root) {
                                    if (fate.step > 0) std::this_thread::sleep_for(milliseconds(100));
                                    return newcomer(3, 3)(transport, root);
                                  }});
    EXPECT_THAT(ends, testing::Each(kWell));
  }
}

// It stands still in each try, and comes back: others get in all the same.
TEST_P(ElasticLossOver, ANewcomerThatAlwaysStandsStillKeepsNobodyOut) {
  const Role again_and_again = [](transport::Transport&, const std::string& root) {
    const auto until = steady_clock::now() + kLong;
    bool invited = false;
    for (;;) {
      const auto answered = rendezvous::knock_at_all({root}, kMostInvitation, steady_clock::now() + milliseconds(500));
      // When the members have ended.
      if (!answered && invited) return kWell;
      if (steady_clock::now() > until) return kOther;
      if (!answered) continue;
      invited = true;
      (void)answered->line.hear(1, until);
    }
  };
  const auto ends = in_processes(GetParam(), {member(0, 2, 3, 1), member(1, 2, 3, 1), again_and_again,
                                              [](transport::Transport& transport, const std::string& root) {
                                                std::this_thread::sleep_for(milliseconds(100));
                                                return newcomer(3, 3)(transport, root);
                                              }});
  EXPECT_THAT(ends, testing::Each(kWell));
}

// At any moment of its way in, or shortly behind it: then it is a rank that died, and is named.
TEST_P(ElasticLossOver, ANewcomerThatIsKilledAtAnyMoment) {
  int in = 0;
  // Of all processes.
  void* const shared =
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  for (std::uint64_t seed = 0; seed < (tests::kSanitized ? 3 : 8); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const auto wait = static_cast<int>(rng.below(tests::kSanitized ? 60'000 : 12'000));
    auto* const knocked = new (shared) std::atomic<bool>(false);
    const Role lives = [&](transport::Transport& transport, const std::string& root) {
      const auto elastic = first(transport, 0, 1, elastic_options(root));
      if (!elastic) return complain(elastic.error());
      Worker worker(**elastic, 0);
      if (const auto ok = worker.add_memory(); !ok) return complain(ok.error());
      auto until = steady_clock::now() + kLong;
      for (bool has_come = false; steady_clock::now() < until;) {
        if (!has_come && *knocked) {
          has_come = true;
          until = steady_clock::now() + milliseconds(tests::kSanitized ? 3000 : 300);
        }
        if (const auto ok = worker.step(false); !ok)
          return ok.error().message.starts_with("rank 1: ") ? kNamed : complain(ok.error());
        const auto resized = (*elastic)->resize();
        if (!resized) return resized.error().message.starts_with("rank 1: ") ? kNamed : complain(resized.error());
      }
      (*elastic)->close();
      return kWell;
    };
    const Role dies = [&](transport::Transport& transport, const std::string& root) {
      // Its time runs from when the door is open.
      while (!rendezvous::knock(root, steady_clock::now())) std::this_thread::yield();
      *knocked = true;
      std::thread([wait] {
        usleep(static_cast<useconds_t>(wait));
        (void)raise(SIGKILL);
      }).detach();
      return newcomer(1, kMostIds)(transport, root);
    };
    const auto ends = in_processes(GetParam(), {lives, dies});
    EXPECT_THAT(ends[0], testing::AnyOf(kWell, kNamed));
    EXPECT_EQ(ends[1], -SIGKILL);
    in += ends[0] == kNamed ? 1 : 0;
  }
  ::munmap(shared, sizeof(std::atomic<bool>));
  RecordProperty("in", in);
}

// A member that dies at any moment between operations and changes: all others name it, soon.
TEST_P(ElasticLossOver, AMemberThatIsKilledIsNamedByAll) {
  for (std::uint64_t seed = 0; seed < (tests::kSanitized ? 3 : 6); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const auto wait = static_cast<useconds_t>(rng.below(30'000));
    const auto role = [&](Member rank) -> Role {
      return [=](transport::Transport& transport, const std::string& root) {
        const auto elastic = first(transport, rank, 3, elastic_options(root));
        if (!elastic) return elastic.error().message.starts_with("rank 1: ") ? kNamed : complain(elastic.error());
        if (rank == 1) {
          std::thread([wait] {
            usleep(wait);
            (void)raise(SIGKILL);
          }).detach();
        }
        Worker worker(**elastic, rank);
        if (const auto ok = worker.add_memory(); !ok) return complain(ok.error());
        for (;;) {
          const auto begin = steady_clock::now();
          auto ok = worker.step(false);
          if (ok) {
            const auto resized = (*elastic)->resize();
            if (!resized) ok = tl::unexpected(resized.error());
          }
          if (ok) continue;
          const bool late = steady_clock::now() - begin > std::chrono::seconds(tests::kSanitized ? 20 : 3);
          return ok.error().message.starts_with("rank 1: ") && !late ? kNamed : complain(ok.error());
        }
      };
    };
    EXPECT_THAT(in_processes(GetParam(), {role(0), role(1), role(2)}), testing::ElementsAre(kNamed, -SIGKILL, kNamed));
  }
}

// Where leave() has returned the process may end as it likes.
TEST_P(ElasticLossOver, WhoHasLeftMayDie) {
  const Role leaves = [](transport::Transport& transport, const std::string& root) {
    const auto elastic = first(transport, 0, 3, elastic_options(root));
    if (!elastic) return complain(elastic.error());
    Worker worker(**elastic, 0);
    if (const auto ok = worker.add_memory(); !ok) return complain(ok.error());
    if (const auto ok = worker.step(false); !ok) return complain(ok.error());
    if (const auto ok = (*elastic)->leave(); !ok) return complain(ok.error());
    const auto again = (*elastic)->resize();
    if (again || again.error().message != "this rank has left") return kOther;
    (void)raise(SIGKILL);
    return kOther;
  };
  EXPECT_THAT(in_processes(GetParam(), {leaves, member(1, 3, 2, 0), member(2, 3, 2, 0)}),
              testing::ElementsAre(-SIGKILL, kWell, kWell));
}

INSTANTIATE_TEST_SUITE_P(Transports, ElasticLossOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front()),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace clustar::paraexpress
