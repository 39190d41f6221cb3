// The server of PsCollective: one thread that adds up what all workers send and sends each of them the sum.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/proxy/socket_io.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/ps_frames.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// One collective after the other: it takes the workers' messages as they come, adds in rank order, and answers when it
// has the last one. What a worker does wrong, or that it died, it tells all others, and ends.
class PsServer {
 public:
  struct Options {
    int ranks = 1;
    std::uint64_t token = 0;  // of the run: strangers do not know it
    std::chrono::milliseconds join_timeout{60000};
    // The longest that nothing of a collective moves; 0: forever.
    std::chrono::milliseconds stall_timeout{120000};
  };
  // Listens on `host`, at a port of the kernel's choice.
  static Result<std::unique_ptr<PsServer>> listen(const std::string& host, const Options& options);
  ~PsServer();  // as stop()

  std::uint16_t port() const { return port_; }
  void start();  // once
  // Ends it after the answers that are under way, as long as they move. Idempotent.
  void stop();
  // Between it and the workers of other processes. Any thread.
  Traffic traffic() const;

 private:
  using Deadline = proxy::Deadline;
  struct Worker {
    FileDescriptor fd{};
    ps::Header header{};
    std::size_t got_header = 0, got_body = 0, sent = 0;
    ps::Message body{}, answer{};
    bool done = false;  // its message is there
    bool left = false;
    bool waits() const { return !left && sent < answer.size(); }
  };
  struct Newcomer {
    FileDescriptor fd{};
    ps::Header hello{};
    std::size_t got = 0;
  };

  explicit PsServer(const Options& options);
  void run();
  Result<void> join();
  Result<void> admit(Newcomer& newcomer);
  Result<bool> serve();
  Result<bool> receive();
  Result<bool> take(std::size_t rank);
  Result<void> check(std::size_t rank);
  void add_up();
  Result<void> answer();
  bool put(std::size_t rank);
  void tell(const Error& error);

  std::size_t ranks() const { return workers_.size(); }
  bool has_begun() const;
  std::string those(bool Worker::*not_yet) const;
  Deadline stall_limit() const;

  const Options options_;
  FileDescriptor listener_;
  std::uint16_t port_ = 0;
  std::vector<Worker> workers_;  // by rank
  std::uint64_t sequence_ = 0;
  const ps::Header* first_ = nullptr;  // of the collective's messages, the one that came first
  std::size_t added_ = 0;              // so many ranks' are in the result
  ps::Message result_;
  std::atomic<std::uint64_t> bytes_in_{0}, bytes_out_{0}, messages_in_{0}, messages_out_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace clustar::bench::trainer
