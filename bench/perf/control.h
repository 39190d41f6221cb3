// Lines of JSON between the coordinator and its workers, over a socket pair here or TCP to another host.
// Never used while something is timed, but for a worker's sign of life once a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/proxy/socket_io.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

// send() from any thread; the rest from one.
class Control {
 public:
  static constexpr std::size_t kMaxLine = 8u << 20;

  explicit Control(FileDescriptor fd);

  int fd() const { return fd_.fd(); }
  // Bounded by 10 s. False when the other end is gone or does not read.
  bool send(const nlohmann::json& message);

  enum class State : std::uint8_t { kMessage, kNothing, kClosed };
  // Never blocks. A line that is no JSON object, or too long, counts as closed: the other end is no clustar.
  State poll(nlohmann::json* message);
  // poll() until something is there or the deadline.
  State wait(nlohmann::json* message, proxy::Deadline deadline);

 private:
  FileDescriptor fd_;
  std::mutex send_mutex_;
  std::string unread_;
};

// An error as a message and back; the code survives.
nlohmann::json to_json(const Error& error);
Error error_from(const nlohmann::json& message);

// The address that the other end of `fd` reaches this process by: 127.0.0.1 for a socket pair.
std::string local_address(int fd);

struct Listening {
  FileDescriptor fd;
  std::string address;  // "host:port", "[v6]:port"
};
Result<Listening> listen_on_any_port(const std::string& host);

}  // namespace clustar::bench::perf
