// Runs the `clustar` executable of this build for a test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace clustar::bench::trainer {

struct Outcome {
  int status = -1;  // exit status; 128 + n when signal n ended it; -1 when it had to be killed at the limit
  std::string out;
  std::string err;
  double seconds = 0;
};

// A started command. The destructor kills what still runs.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until `text` is in what it wrote to standard error. False at the limit or when it ended first.
  bool wait_for_error_text(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(30));
  Outcome wait(std::chrono::seconds limit = std::chrono::seconds(200));

 private:
  bool read_some(int timeout_ms);

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  Outcome outcome_;
  std::chrono::steady_clock::time_point started_;
};

using Words = std::vector<std::string>;
Words plus(Words words, const Words& more);

Outcome run_clustar(const Words& arguments);

// `clustar train --collective <collective>`.
Words train_by(const std::string& collective, const Words& more);
// The results of such a run, which has to succeed.
nlohmann::json results_by(const std::string& collective, const Words& more);
// Two buckets, of 1,580,072 and 1,098,752 bytes or so: 8 steps.
extern const Words kShortRun;

// Running processes whose parent is `parent`, with their command lines joined by blanks.
struct Process {
  pid_t pid;
  std::string command_line;
};
std::vector<Process> children_of(pid_t parent);

// Of a training of three ranks: rank 1 is killed in its first epoch; the command ends soon, names it, and leaves
// nobody.
void expect_killed_rank_is_named(Command& command);

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const;
  nlohmann::json read_json(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace clustar::bench::trainer
