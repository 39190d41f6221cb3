// How a check ends, inside the process that runs it. A check is one forked process: it passes by returning, and ends at
// once, from any thread and any depth, by fail_check or skip_check. The first verdict counts; whatever the plugin
// still holds goes with the process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace clustar::bench::conform {

enum class Outcome : std::uint8_t { kPass, kFail, kSkip };
const char* to_string(Outcome outcome);

[[noreturn]] void fail_check(const std::string& reason);
[[noreturn]] void skip_check(const std::string& reason);

// What the check is at, for the report of a crash or a hang: a phrase (check's main thread only) and the name of the
// plugin call being made (any thread; a string literal, because the reader is the forking parent).
void note_step(std::string_view phrase);
void note_call(const char* literal);

// Shared memory between runner and check.
struct Board {
  std::atomic<const char*> call;
  std::array<char, 240> step;
};

// For the runner and for Peer, right after fork: where verdicts go.
void enter_check(int verdict_fd, Board* board);
void enter_peer();
void write_verdict(Outcome outcome, const std::string& reason);

}  // namespace clustar::bench::conform
