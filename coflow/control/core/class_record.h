// What one NIC of this process sends, by class: its send policy writes it, its agent reads it and writes the places
// that the coordinator gives.
//
// Threads: the policy's calls are made under the NIC's lock, the agent's by its own thread. What is counted with each
// part that is sent has one writer, and takes no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "coflow/control/core/messages.h"
#include "transport/base/time.h"

namespace clustar::coflow::control {

// One class. Written by the policy, but for the lower part.
struct ClassRecord {
  explicit ClassRecord(const ClassKey& its_key) : key(its_key) {}

  struct Peer {
    std::atomic<std::uint32_t> number{0};
    std::atomic<std::uint64_t> queued{0};
  };
  // The counter of what is queued to this peer; more than kMostPeers share the last one.
  std::atomic<std::uint64_t>& queued_to(std::uint32_t peer);

  const ClassKey key;
  std::atomic<std::uint8_t> urgency{0};
  std::atomic<bool> repeats{false};
  std::atomic<std::uint64_t> in_all{0}, left{0}, attained{0};  // bytes
  std::atomic<std::int64_t> began_at{0};                       // ns: its latest iteration
  std::atomic<std::uint32_t> period_us{0};
  std::array<Peer, kMostPeers> peers{};
  std::atomic<std::uint32_t> peers_used{0};
  // The policy's own:
  std::uint64_t first_coflow = 0;  // of the latest iteration
  TimePoint held_until{};          // nothing of it leaves before
  TimePoint capped_until{};        // likewise: what it may send until now was sent

  // By the agent:
  std::atomic<std::uint32_t> place{0};  // 0: the coordinator has not heard of it yet
  std::atomic<std::uint8_t> level{0};
  std::atomic<std::uint64_t> cap{0};      // bytes per second; 0: none
  std::atomic<std::uint32_t> hold_us{0};  // the policy takes it away when it obeys
  std::atomic<bool> retired{false};       // no longer in the book
};

class ClassPlaces {
 public:
  virtual ~ClassPlaces() = default;
  // The class's record; null: there are kMostClasses. A lock and a search: once in each coflow.
  virtual std::shared_ptr<ClassRecord> open(const ClassKey& key) = 0;
  // Whether an order counts: then classes without a place go first, until they have one.
  bool ordered() const { return ordered_.load(std::memory_order_acquire); }
  // Grows when places are others.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

 protected:
  void changed(bool ordered) {
    ordered_.store(ordered, std::memory_order_release);
    version_.fetch_add(1, std::memory_order_release);
  }

 private:
  std::atomic<bool> ordered_{false};
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace clustar::coflow::control
