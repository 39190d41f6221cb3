#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace nccl_host {

struct RankOptions {
  const char* program = "";
  int ranks = 2;
  int timeout = 60;    // seconds for all of them
  std::string launch;  // words before the program's own, {rank} replaced; empty: a fork
  // Of a rank that was launched so: which one it is, and the file that all of them map.
  int rank = -1;
  std::string shared;
};

// Memory that all ranks and their parent map, all zero at first. Anonymous where the ranks are forks; otherwise a file.
class SharedMemory {
 public:
  SharedMemory(const RankOptions& options, size_t size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* get() const { return memory_; }
  const std::string& path() const { return path_; }

 private:
  size_t size_;
  std::string path_;
  bool owner_ = false;
  void* memory_ = nullptr;
};

// Ranks as processes of their own. Each ends with its parent.
class Ranks {
 public:
  // argv: the program's; it is started again with it, by options.launch, or run(rank) is called in a fork.
  Ranks(const RankOptions& options, const SharedMemory& shared, char** argv, const std::function<void(int)>& run);
  // Ends those that are left.
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void Signal(int rank, int signal) const;
  // True: every rank ended well, but for the one that was killed on purpose. False: one did not, or the time is over;
  // the others are ended then.
  bool Await(int killed = -1);
  // False once a rank ended or the time is over.
  bool AllRun();
  bool InTime() const;

 private:
  enum class End { kRuns, kWell, kBadly };
  End Look(int rank);

  const char* program_;
  int timeout_;
  std::chrono::steady_clock::time_point deadline_;
  std::vector<pid_t> processes_;  // -1: ended
  std::vector<bool> well_;
};

}  // namespace nccl_host
