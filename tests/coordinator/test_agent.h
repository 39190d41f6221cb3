// An agent by hand: says what a test wants, and hears what the coordinator answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coflow/control/core/session.h"
#include "tests/coordinator/daemon_process.h"

namespace clustar::tests {

class TestAgent {
 public:
  // Connects; the session's opening goes with the first message.
  explicit TestAgent(std::uint16_t port, coflow::control::SessionKey key = {});
  ~TestAgent();
  TestAgent(const TestAgent&) = delete;
  TestAgent& operator=(const TestAgent&) = delete;

  bool connected() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void send(const coflow::control::Message& message);
  // The next message; nothing when the connection ends, or the time is over.
  std::optional<coflow::control::Message> next(std::chrono::milliseconds limit = kPatience);
  // The next of this kind; others are passed over.
  template <class Kind>
  std::optional<Kind> next_of(std::chrono::milliseconds limit = kPatience) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (const auto message = next(left(end))) {
      if (const auto* one = std::get_if<Kind>(&*message)) return *one;
    }
    return std::nullopt;
  }
  // Reads on until the coordinator closes; false at the limit.
  bool closes(std::chrono::milliseconds limit = kPatience);
  const coflow::control::Session& session() const { return session_; }

 private:
  static std::chrono::milliseconds left(std::chrono::steady_clock::time_point end);
  void flush();
  bool read_more(std::chrono::milliseconds limit);

  coflow::control::Session session_;
  int fd_ = -1;
  bool closed_ = false;
};

coflow::control::Hello hello_of(std::uint64_t agent, std::uint32_t job, const std::string& host = "node-1");
coflow::control::Report report_of(std::uint32_t job, std::uint64_t group, std::uint64_t bytes);

}  // namespace clustar::tests
