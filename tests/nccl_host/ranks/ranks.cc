#include "tests/nccl_host/ranks/ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

namespace nccl_host {
namespace {

[[noreturn]] void Fail(const char* program, const std::string& what) {
  std::fprintf(stderr, "%s: ", program);
  std::perror(what.c_str());
  std::exit(1);
}

std::string Replaced(std::string word, int rank) {
  static const std::string kRank = "{rank}";
  for (size_t at = 0; (at = word.find(kRank, at)) != std::string::npos;)
    word.replace(at, kRank.size(), std::to_string(rank));
  return word;
}

[[noreturn]] void Launch(const RankOptions& options, const std::string& shared, char** argv, int rank) {
  std::vector<std::string> words;
  std::istringstream text(options.launch);
  for (std::string word; text >> word;) words.push_back(Replaced(word, rank));
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) Fail(options.program, "/proc/self/exe");
  words.emplace_back(self);
  for (char** argument = argv + 1; *argument; ++argument) words.emplace_back(*argument);
  for (const std::string& word : {std::string("--rank"), std::to_string(rank), std::string("--shared"), shared})
    words.push_back(word);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  Fail(options.program, "--launch: cannot run '" + words[0] + "'");
}

}  // namespace

SharedMemory::SharedMemory(const RankOptions& options, size_t size) : size_(size), path_(options.shared) {
  int file = -1;
  int flags = MAP_SHARED;
  if (!path_.empty()) {
    file = open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) Fail(options.program, "--shared: cannot open '" + path_ + "'");
  } else if (!options.launch.empty()) {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder ? folder : "/tmp") + "/nccl-host-XXXXXX";
    file = mkostemp(path_.data(), O_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) Fail(options.program, path_);
    owner_ = true;
  } else {
    flags |= MAP_ANONYMOUS;
  }
  memory_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory_ == MAP_FAILED) Fail(options.program, "mmap");
  if (file >= 0) close(file);
}

SharedMemory::~SharedMemory() {
  munmap(memory_, size_);
  if (owner_) unlink(path_.c_str());
}

Ranks::Ranks(const RankOptions& options, const SharedMemory& shared, char** argv, const std::function<void(int)>& run)
    : program_(options.program),
      timeout_(options.timeout),
      deadline_(std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout)),
      well_(static_cast<size_t>(options.ranks)) {
  std::fflush(stdout);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) Fail(program_, "fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) std::_Exit(1);
      if (!options.launch.empty()) Launch(options, shared.path(), argv, rank);
      run(rank);
      std::exit(0);
    }
    processes_.push_back(child);
  }
}

Ranks::~Ranks() {
  for (const pid_t process : processes_) {
    if (process < 0) continue;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
}

void Ranks::Signal(int rank, int signal) const {
  const pid_t process = processes_[static_cast<size_t>(rank)];
  if (process > 0) kill(process, signal);
}

Ranks::End Ranks::Look(int rank) {
  const auto index = static_cast<size_t>(rank);
  int status = 0;
  if (processes_[index] > 0 && waitpid(processes_[index], &status, WNOHANG) == processes_[index]) {
    processes_[index] = -1;
    well_[index] = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!well_[index] && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
      std::fprintf(stderr, "%s: rank %d ended by signal %d\n", program_, rank, WTERMSIG(status));
  }
  if (processes_[index] > 0) return End::kRuns;
  return well_[index] ? End::kWell : End::kBadly;
}

bool Ranks::Await(int killed) {
  for (;;) {
    bool running = false;
    bool good = true;
    for (int rank = 0; rank < static_cast<int>(processes_.size()); ++rank) {
      const End end = Look(rank);
      running = running || end == End::kRuns;
      good = good && (end != End::kBadly || rank == killed);
    }
    if (!good || !running) return good;
    if (std::chrono::steady_clock::now() > deadline_) {
      std::fprintf(stderr, "%s: not done after --timeout %d s\n", program_, timeout_);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool Ranks::InTime() const { return std::chrono::steady_clock::now() <= deadline_; }

bool Ranks::AllRun() {
  if (!InTime()) return false;
  for (int rank = 0; rank < static_cast<int>(processes_.size()); ++rank) {
    if (Look(rank) != End::kRuns) return false;
  }
  return true;
}

}  // namespace nccl_host
