// The right of peers to write into a part of our memory, given and taken back: memory windows of type 1.
//
// Type 1, because such a window belongs to its protection domain: one bind opens it to every pair, while one of type 2
// belongs to a queue pair and would have to be bound once per pair. It is bound and unbound (a bind of no bytes) by a
// queue pair that is connected to itself, so neither depends on what a pair can do or on whether it works.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/ring.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/queue_pair.h"

namespace clustar::transport::io::verbs::uc {

class Windows {
 public:
  static constexpr Duration kLongestUnbind = std::chrono::seconds(2);

  // `most`: bound at a time. Error: the device has no windows of type 1, or cannot connect to itself.
  static Result<std::unique_ptr<Windows>> make(const Device& device, const ProtectionDomain& domain,
                                               const GidEntry& gid, std::uint8_t port, std::uint32_t most);

  // Begins to open [offset, offset + length) of a region with MW_BIND and LOCAL_WRITE; poll() tells when it is open.
  // Nothing: as many as there may be are open, or binding has failed (problem()).
  std::optional<std::uint32_t> bind(const MemoryRegion& region, std::size_t offset, std::size_t length,
                                    std::uint64_t tag);
  struct Bound {
    std::uint64_t tag = 0;  // bind()'s
    std::uint32_t rkey = 0;
  };
  std::optional<Bound> poll();
  // Ends all access through the window and returns when that is certain, whether it was open yet or not. False: neither
  // unbinding nor freeing it worked; then only the end of the pairs does.
  bool unbind(std::uint32_t window, const MemoryRegion& region);

  // Why nothing can be bound any more; empty: it can.
  const std::string& problem() const { return problem_; }
  // poll() has something to come.
  bool pending() const { return pending_ > 0 && problem_.empty(); }
  std::uint64_t binds() const { return bind_count_; }  // and unbinds

 private:
  struct Window {
    Handle<ibv_mw> handle{};
    std::uint64_t tag = 0;
    int keys_used = 0;
    bool open = false;       // what was posted last is a bind, not an unbind
    bool unbinding = false;  // and not complete
  };
  // A key has 8 bits; with all of them used, one that a peer knows would be valid again.
  static constexpr int kMostKeys = 250;

  Windows(const Device& device, const ProtectionDomain& domain, CompletionQueue queue, QueuePair pair,
          std::uint32_t most);
  bool fresh(Window& window);
  bool post(std::uint32_t window, const MemoryRegion& region, std::size_t offset, std::size_t length);
  void drain();
  void give_up(const std::string& why);
  bool free_window(Window& window);

  const std::string device_;
  const ProtectionDomain& domain_;
  CompletionQueue queue_;
  std::vector<Window> windows_;
  std::vector<std::uint32_t> free_;
  Ring<Bound> bound_;
  std::string problem_;
  std::uint64_t bind_count_ = 0;
  std::uint32_t pending_ = 0;  // binds that are not complete
  QueuePair pair_;             // destroyed before the windows that it binds
};

}  // namespace clustar::transport::io::verbs::uc
