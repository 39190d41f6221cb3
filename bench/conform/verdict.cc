#include "bench/conform/verdict.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace clustar::bench::conform {
namespace {

// One check per process, so these are per check.
int g_verdict_fd = -1;
Board* g_board = nullptr;
bool g_is_peer = false;

constexpr std::size_t kMaxReason = 2000;  // one write below PIPE_BUF is atomic, so verdicts never mix

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass: return "pass";
    case Outcome::kFail: return "fail";
    case Outcome::kSkip: return "skip";
  }
  return "?";
}

void write_verdict(Outcome outcome, const std::string& reason) {
  std::string line(1, static_cast<char>('0' + static_cast<int>(outcome)));
  line += reason.substr(0, kMaxReason);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  [[maybe_unused]] const ssize_t written = write(g_verdict_fd, line.data(), line.size());
}

void fail_check(const std::string& reason) {
  write_verdict(Outcome::kFail, g_is_peer ? "in the peer process: " + reason : reason);
  _exit(0);
}

void skip_check(const std::string& reason) {
  write_verdict(Outcome::kSkip, reason);
  _exit(0);
}

void note_step(std::string_view phrase) {
  if (g_board == nullptr || g_is_peer) return;
  const std::size_t n = std::min(phrase.size(), g_board->step.size() - 1);
  std::memcpy(g_board->step.data(), phrase.data(), n);
  g_board->step[n] = '\0';
  g_board->call = nullptr;
}

void note_call(const char* literal) {
  if (g_board != nullptr && !g_is_peer) g_board->call.store(literal, std::memory_order_relaxed);
}

void enter_check(int verdict_fd, Board* board) {
  g_verdict_fd = verdict_fd;
  g_board = board;
  g_is_peer = false;
}

void enter_peer() { g_is_peer = true; }

}  // namespace clustar::bench::conform
