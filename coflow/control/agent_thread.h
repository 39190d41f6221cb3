// The thread in which a process speaks to its coordinators: one for all its NICs. Plain sockets: each NIC has one
// connection and says something ten times a second, and Asio's templates would be in every user's process for that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coflow/control/class_book.h"
#include "transport/base/log.h"
#include "transport/base/result.h"

namespace clustar::coflow::control {

struct AgentThreadOptions {
  std::vector<std::string> coordinators{};  // HOST:PORT, the primary first
  std::string key_file{};                   // empty: no key
  std::string tenant{};
  std::uint32_t job = 0;
  std::uint32_t weight = 1;
  Duration deadline{0};  // of each iteration or coflow; 0: none
};

class AgentThread {
 public:
  static constexpr std::size_t kMostNics = 16;
  struct Nic {
    std::string name{};
    std::uint64_t bytes_per_second = 0;  // 0: unknown
  };

  // Reads the key, looks the hosts up, which takes as long as the resolver does, and starts the thread. Null: no host
  // could be looked up, which was told to the log. Errors: a key that cannot be used.
  static Result<std::unique_ptr<AgentThread>> start(const AgentThreadOptions& options, Log log);
  ~AgentThread();  // joins it: it waits for nothing but its own descriptors
  AgentThread(const AgentThread&) = delete;
  AgentThread& operator=(const AgentThread&) = delete;

  // A NIC whose bytes are to be ordered; null: there are kMostNics. Any thread.
  std::shared_ptr<ClassBook> add(const Nic& nic);

 private:
  class Loop;
  explicit AgentThread(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace clustar::coflow::control
