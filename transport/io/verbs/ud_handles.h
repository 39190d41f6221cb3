// Address handles of peers, made by a thread: the kernel may wait a second for ARP.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/path.h"

namespace clustar::transport::io::verbs {

// Where the paths of a peer are reached.
struct UdAddress {
  Gid gid{};
  std::uint32_t q_key = 0;
  std::vector<std::uint32_t> queue_pairs{};  // one per path, 24 bits

  bool operator==(const UdAddress&) const = default;
};

// Of one peer: a handle per path, traffic class and ECT, since each has another TOS byte or UDP source port.
class UdHandles {
 public:
  explicit UdHandles(const UdAddress& address) : address_(address) {}

  const UdAddress& address() const { return address_; }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // Once ready.
  ibv_ah* get(std::uint8_t path, std::uint8_t traffic_class, bool ect) const {
    return handles_[(path * 8u + traffic_class) * 2u + (ect ? 1u : 0u)].get();
  }
  std::optional<Error> error() const;  // of the latest try, while not ready

 private:
  friend class UdHandleMaker;
  const UdAddress address_;
  std::vector<AddressHandle> handles_;  // the thread's until ready_
  std::atomic<bool> ready_{false};
  std::atomic<bool> given_up_{false};
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

class UdHandleMaker {
 public:
  // `domain` outlives this.
  UdHandleMaker(const ProtectionDomain& domain, std::uint8_t port, int gid_index);
  ~UdHandleMaker();  // waits for the call that is under way, about 1 s at most

  // Tries until it is done or given back. Peers that never failed go first.
  void make(std::shared_ptr<UdHandles> handles);
  // No request that names one of them is outstanding any more. They are destroyed by the thread.
  void give_back(std::shared_ptr<UdHandles> handles);

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    std::shared_ptr<UdHandles> handles;
    Clock::time_point due{};
    std::uint32_t tries = 0;
  };
  void run();
  std::optional<Job> next(std::unique_lock<std::mutex>& lock);
  Result<void> make_all(UdHandles& handles) const;

  const ProtectionDomain& domain_;
  const std::uint8_t port_;
  const int gid_index_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<Job> jobs_;
  std::vector<std::shared_ptr<UdHandles>> given_back_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace clustar::transport::io::verbs
