#include "tests/trainer/command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace clustar::bench::trainer {

using Clock = std::chrono::steady_clock;

Command::Command(const std::vector<std::string>& arguments) : started_(Clock::now()) {
  std::vector<std::string> owned{CLUSTAR_EXECUTABLE};
  owned.insert(owned.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : owned) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  if (posix_spawn(&pid_, CLUSTAR_EXECUTABLE, &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Command::~Command() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
}

// False when both pipes are at their end.
bool Command::read_some(int timeout_ms) {
  std::array<pollfd, 2> polled{{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}}};
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  if (poll(polled.data(), polled.size(), timeout_ms) <= 0) return true;
  const auto take = [](const pollfd& entry, int& fd, std::string& into) {
    if (entry.fd < 0 || entry.revents == 0) return;
    std::array<char, 4096> block;
    const ssize_t n = read(fd, block.data(), block.size());
    if (n > 0) {
      into.append(block.data(), static_cast<std::size_t>(n));
    } else {
      close(fd);
      fd = -1;
    }
  };
  take(polled[0], out_fd_, outcome_.out);
  take(polled[1], err_fd_, outcome_.err);
  return true;
}

bool Command::wait_for_error_text(const std::string& text, std::chrono::seconds limit) {
  const auto until = Clock::now() + limit;
  while (outcome_.err.find(text) == std::string::npos) {
    if (Clock::now() > until || !read_some(100)) return false;
  }
  return true;
}

Outcome Command::wait(std::chrono::seconds limit) {
  const auto until = Clock::now() + limit;
  while (Clock::now() < until && read_some(100)) {
  }
  int status = 0;
  pid_t ended = 0;
  while (pid_ > 0 && (ended = waitpid(pid_, &status, WNOHANG)) == 0 && Clock::now() < until) usleep(2000);
  if (ended == pid_) {
    pid_ = -1;
    outcome_.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  outcome_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  return outcome_;
}

const Words kShortRun{"--model", "mlp", "--epochs", "2", "--batch", "100", "--examples", "500"};

Words plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome run_clustar(const Words& arguments) { return Command(arguments).wait(); }

Words train_by(const std::string& collective, const Words& more) {
  return plus({"train", "--no-progress", "--collective", collective}, more);
}

nlohmann::json results_by(const std::string& collective, const Words& more) {
  const TemporaryDirectory dir;
  const Outcome outcome = run_clustar(train_by(collective, plus(more, {"--json", dir.file("r.json")})));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.status == 0 ? dir.read_json("r.json").at("results") : nlohmann::json::object();
}

std::vector<Process> children_of(pid_t parent) {
  std::vector<Process> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) continue;
    std::ifstream stat_file(entry.path() / "stat");
    std::string stat;
    std::getline(stat_file, stat);
    const std::size_t after_name = stat.rfind(')');
    if (after_name == std::string::npos) continue;
    std::istringstream fields(stat.substr(after_name + 1));
    char state = 0;
    pid_t ppid = 0;
    fields >> state >> ppid;
    if (ppid != parent) continue;
    std::ifstream command_file(entry.path() / "cmdline", std::ios::binary);
    // A process that ends meanwhile is an error of reading, which this operator keeps to itself.
    std::ostringstream text;
    text << command_file.rdbuf();
    std::string line = text.str();
    std::replace(line.begin(), line.end(), '\0', ' ');
    found.push_back({static_cast<pid_t>(std::stol(name)), line});
  }
  return found;
}

TemporaryDirectory::TemporaryDirectory() {
  path_ = (std::filesystem::temp_directory_path() / "clustar-train-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary directory");
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TemporaryDirectory::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(file(name), std::ios::binary) << bytes;
}

nlohmann::json TemporaryDirectory::read_json(const std::string& name) const {
  std::ifstream in(file(name));
  return nlohmann::json::parse(in);
}

void expect_killed_rank_is_named(Command& command) {
  ASSERT_TRUE(command.wait_for_error_text("epoch   1/"));
  const std::vector<Process> ranks = children_of(command.pid());
  ASSERT_EQ(ranks.size(), 3u);
  for (const Process& rank : ranks) {
    if (rank.command_line.find("--rank 1 ") != std::string::npos) kill(rank.pid, SIGKILL);
  }
  const auto before = std::chrono::steady_clock::now();
  const Outcome outcome = command.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(15));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, testing::HasSubstr("rank 1 was killed by signal 9"));
  for (const Process& rank : ranks) EXPECT_NE(kill(rank.pid, 0), 0) << rank.command_line;
}

}  // namespace clustar::bench::trainer
