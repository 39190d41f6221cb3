#include "tests/coordinator/test_agent.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace clustar::tests {
namespace {

using namespace coflow::control;

Nonce16 random_nonce() {
  Nonce16 nonce;
  [[maybe_unused]] const ssize_t got = getrandom(nonce.data(), nonce.size(), 0);
  return nonce;
}

}  // namespace

TestAgent::TestAgent(std::uint16_t port, SessionKey key)
    : session_(Session::Side::kAgent, std::move(key), random_nonce()), fd_(connect_to(port)) {
  flush();
}

TestAgent::~TestAgent() {
  if (fd_ >= 0) close(fd_);
}

std::chrono::milliseconds TestAgent::left(std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return std::max(std::chrono::milliseconds(0), left);
}

void TestAgent::flush() {
  const auto bytes = session_.to_send();
  if (fd_ < 0 || bytes.empty()) return;
  write_all(fd_, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  session_.sent(bytes.size());
}

void TestAgent::send(const Message& message) {
  session_.send(message);
  flush();
}

bool TestAgent::read_more(std::chrono::milliseconds limit) {
  pollfd ready{fd_, POLLIN, 0};
  if (closed_ || poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return false;
  std::array<std::byte, 16384> bytes;
  const ssize_t got = recv(fd_, bytes.data(), bytes.size(), 0);
  closed_ = got <= 0;
  if (closed_ || !session_.on_bytes(std::span(bytes).first(static_cast<std::size_t>(got)))) return false;
  flush();
  return true;
}

std::optional<Message> TestAgent::next(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    if (auto message = session_.next()) return message;
    if (!read_more(left(end))) return std::nullopt;
  }
}

bool TestAgent::closes(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (next(left(end))) {
  }
  return closed_;
}

Hello hello_of(std::uint64_t agent, std::uint32_t job, const std::string& host) {
  Hello hello;
  hello.agent = agent;
  hello.job = job;
  hello.bytes_per_second = 1'250'000'000;
  hello.host = host;
  hello.nic = "eth0";
  return hello;
}

Report report_of(std::uint32_t job, std::uint64_t group, std::uint64_t bytes) {
  ClassReport one;
  one.key = {job, group, 4};
  one.waits = true;
  one.in_all = one.left = bytes;
  return {{one}};
}

}  // namespace clustar::tests
