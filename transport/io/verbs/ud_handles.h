// Address handles of peers, made by a thread: the kernel may wait a second for ARP.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
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
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {

// Of one peer: a handle per path and TOS byte, since each has another UDP source port or TOS. Those of one TOS byte are
// a group, which is made for all paths when it is first needed.
class UdHandles {
 public:
  static constexpr std::size_t kGroups = UdMarks::kMost;

  explicit UdHandles(const UdAddress& address) : address_(address) {}

  const UdAddress& address() const { return address_; }
  bool ready(std::size_t group) const { return groups_[group].ready.load(std::memory_order_acquire); }
  // Once the group is ready.
  ibv_ah* get(std::size_t group, std::uint8_t path) const { return groups_[group].handles[path].get(); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }  // the latest try
  Error error() const;                                                     // its

 private:
  friend class UdHandleMaker;
  struct Group {
    std::vector<AddressHandle> handles;  // the maker's until ready
    std::atomic<bool> ready{false};
  };
  const UdAddress address_;
  std::array<Group, kGroups> groups_;
  std::atomic<bool> given_up_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Error error_{};
};

class UdHandleMaker {
 public:
  // `domain` outlives this.
  UdHandleMaker(const ProtectionDomain& domain, std::uint8_t port, int gid_index, const FixedMarks& marks);
  ~UdHandleMaker();  // waits for the call that is under way, about 1 s at most

  // Once for each group. Tries, each second, until it is done or given back; what never failed goes first.
  void make(std::shared_ptr<UdHandles> handles, std::size_t group, std::uint8_t tos);
  // No request that names one of them is outstanding any more. They are destroyed by the thread.
  void give_back(std::shared_ptr<UdHandles> handles);

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    std::shared_ptr<UdHandles> handles;
    std::size_t group = 0;
    std::uint8_t tos = 0;
    Clock::time_point due{};
    std::uint32_t tries = 0;
  };
  void run();
  std::optional<Job> next(std::unique_lock<std::mutex>& lock);
  Result<void> make_group(const Job& job) const;

  const ProtectionDomain& domain_;
  const std::uint8_t port_;
  const int gid_index_;
  const FixedMarks marks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<Job> jobs_;
  std::vector<std::shared_ptr<UdHandles>> given_back_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace clustar::transport::io::verbs
