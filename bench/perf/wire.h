// What a driver measures over: connections between rank 0 and each other rank, one channel per direction and peer.
// Three kinds: any NCCL net plugin, and plain TCP sockets or bare UDP as the limit of what this path gives.
// Nothing here blocks but connect(). One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/memory.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

using Clock = std::chrono::steady_clock;

// What a test said of a request.
struct Tested {
  bool done = false;
  std::optional<std::size_t> size;  // NCCL does without it, so a plugin may leave it out
};

// What a wire that may lose has lost. Bytes are those of messages.
struct Loss {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
};

class Wire {
 public:
  virtual ~Wire() = default;

  // Opens `count` listeners; each answer is an opaque text to give to the peer that shall connect there.
  virtual Result<std::vector<std::string>> listen(int count) = 0;
  // Outgoing channel k goes to handles[k]; incoming channel k is who connects to the k-th listener.
  virtual Result<void> connect(const std::vector<std::string>& handles, Clock::time_point deadline) = 0;
  // Registers for every outgoing (incoming) channel the memory it sends from (receives into). Both outlive detach().
  virtual Result<void> attach(const Memory& send, const Memory& receive) = 0;
  virtual Result<void> detach() = 0;
  // Closes everything; idempotent. Error: the first that a close returned.
  virtual Result<void> close() = 0;

  // A request, or null: try again later.
  virtual Result<void*> post_send(int channel, std::size_t offset, std::size_t bytes) = 0;
  virtual Result<void*> post_receive(int channel, std::size_t offset, std::size_t bytes) = 0;
  // The request is gone when done.
  virtual Result<Tested> test(void* request) = 0;

  // False: messages do not end up at the offsets that were posted, so their content is not to be compared.
  virtual bool places() const { return true; }
  // Of incoming messages, since the last call.
  virtual Loss take_loss() { return {}; }
  // Polled after the last message of a sample, outside of the timed part, until true: the peer needs this side no more.
  virtual Result<bool> settled() { return true; }
};

struct PluginDescription {
  std::string name;  // the plugin's own
  int version = 0;   // of its table
  std::string device;
  int speed_mbps = 0;
  std::string transport{};  // what it says carries its bytes; empty: it does not say
};

// Of a plugin of this name that controls congestion itself: TCP's is then that of its control connections alone.
struct OwnCongestion {
  std::string plugin;
  std::string name;  // "": TCP's counts
};

struct PluginSpec {
  std::string path;
  int version = 0;  // 0 = the newest it exports
  int device = 0;
  std::map<std::string, std::string> environment = {};  // of the arm's workers, on top of what they inherit
  OwnCongestion own_congestion = {};
};

}  // namespace clustar::bench::perf
