#include "coflow/enforce/board_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "coflow/enforce/host_policy.h"
#include "tests/temp_path.h"
#include "transport/base/system_clock.h"
#include "transport/message/send_queue.h"

namespace clustar::coflow::enforce {
namespace {

using testing::HasSubstr;

class BoardFile : public testing::Test {
 protected:
  Result<std::unique_ptr<BoardPlace>> claim(const std::string& nic = "eth0") { return BoardPlace::claim(nic, folder_); }
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = tests::temp_path("boards");
};

TEST_F(BoardFile, EachHasAPlaceAndTheLastRemovesTheFile) {
  std::string path;
  {
    const auto one = claim().value(), other = claim().value();
    EXPECT_NE(one->slot(), other->slot());
    path = one->path();
    struct stat facts {};
    ASSERT_EQ(stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    one->state().bulk = 42;
    EXPECT_EQ(other->state().bulk, 42u) << "one memory";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(BoardFile, NicsHaveBoardsOfTheirOwnWhateverTheirNames) {
  const auto one = claim("eth0").value(), other = claim("../eth0/x y").value();
  EXPECT_NE(one->path(), other->path());
  EXPECT_EQ(std::filesystem::path(other->path()).parent_path(), folder_);
}

TEST_F(BoardFile, ThePlaceOfADeadProcessIsGivenOutAgain) {
  const auto own = claim().value();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto place = claim();
    const char slot = place ? static_cast<char>((*place)->slot()) : -1;
    (void)!write(ready[1], &slot, 1);
    pause();  // killed here, with its place
    _exit(0);
  }
  char slot = -1;
  ASSERT_EQ(read(ready[0], &slot, 1), 1);
  ASSERT_EQ(slot, 1);
  EXPECT_EQ(claim().value()->slot(), 2u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(claim().value()->slot(), 1u);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(BoardFile, WhenAllPlacesAreTakenItSaysSo) {
  std::vector<std::unique_ptr<BoardPlace>> all;
  for (std::size_t i = 0; i < BoardState::kSlots; ++i) all.push_back(claim().value());
  const auto more = claim();
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("all 64 places are taken"));
}

TEST_F(BoardFile, AFileOfAnotherKindIsRefused) {
  const std::string path = claim().value()->path();
  std::ofstream(path) << "something else";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_THAT(claim().error().message, HasSubstr("another version"));
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(claim().error().message, HasSubstr("0600"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/etc/passwd", path);
  EXPECT_FALSE(claim());
  std::filesystem::remove(path);
  {
    std::ofstream file(path);
    file << std::string(sizeof(BoardState), 'x');
  }
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_THAT(claim().error().message, HasSubstr("another version"));
}

TEST_F(BoardFile, WithoutTheFolderItSaysWhy) {
  EXPECT_THAT(BoardPlace::claim("eth0", folder_ + "/none").error().message, HasSubstr("No such file"));
}

// Four processes with one line, each more urgent than the next. The first is killed while the others wait for it.
TEST_F(BoardFile, AKilledProcessHoldsUpNobody) {
  constexpr std::uint64_t kPart = 16 * 1024;
  struct Shared {
    std::array<std::atomic<std::uint64_t>, 4> sent{};
    std::atomic<bool> over{false};
  };
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const shared = new (memory) Shared;
  std::array<pid_t, 4> children{};
  for (std::uint32_t i = 0; i < children.size(); ++i) {
    children[i] = fork();
    if (children[i] != 0) continue;
    const auto place = claim().value();
    BoardOptions board;
    board.bytes_per_second = 100'000'000;
    board.job = i;
    HostPolicyOptions options;
    options.knows_line = true;
    options.burst = std::chrono::microseconds(60);
    transport::SendQueue queue(
        std::make_unique<HostPolicy>(options, std::make_unique<Board>(place->state(), place->slot(), board)));
    transport::FlowTag tag;
    tag.coflow = 1 + i;
    tag.bytes = 1 << 30;
    tag.urgency = static_cast<transport::Urgency>(i);
    const SystemClock clock;
    queue.push(queue.add_connection(), 0, tag, std::uint64_t{1} << 40, clock.now());
    while (!shared->over.load()) {
      const auto chunk = queue.next(kPart, clock.now());
      if (chunk) {
        queue.commit(*chunk, clock.now());
        shared->sent[i].fetch_add(chunk->length);
      } else {
        sched_yield();
      }
    }
    _exit(0);
  }
  const auto until = [&](auto&& reached) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!reached() && std::chrono::steady_clock::now() < end) usleep(1000);
    return reached();
  };
  EXPECT_TRUE(until([&] { return shared->sent[0].load() > 4'000'000; }));
  kill(children[0], SIGKILL);
  waitpid(children[0], nullptr, 0);
  const std::uint64_t before = shared->sent[1].load();
  EXPECT_TRUE(until([&] { return shared->sent[1].load() > before + 4'000'000; })) << "the next one has the line";
  EXPECT_TRUE(until([&] { return shared->sent[2].load() > 0 && shared->sent[3].load() > 0; })) << "the floor";
  shared->over = true;
  for (std::size_t i = 1; i < children.size(); ++i) {
    int status = 0;
    waitpid(children[i], &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(claim().value()->slot(), 0u) << "all places are free again";
  munmap(memory, sizeof(Shared));
}

TEST_F(BoardFile, ManyThatComeAndGoShareOneBoard) {
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      bool good = true;
      for (int turn = 0; turn < 200 && good; ++turn) {
        const auto place = claim();
        good = place.has_value();
        if (good) (*place)->state().slots[(*place)->slot()].served.fetch_add(1);
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace clustar::coflow::enforce
