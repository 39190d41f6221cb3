// The messages of one NIC's channels, counted by class and by peer. Written once, for all transports.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "transport/api/counters.h"

namespace clustar::transport {

// One channel's. Counting happens on one thread at a time, without a lock and without a locked instruction;
// anybody may read meanwhile.
class TrafficAccount {
 public:
  void sent(std::uint64_t bytes) { add(sent_messages_, 1), add(sent_bytes_, bytes); }
  void received(std::uint64_t bytes) { add(received_messages_, 1), add(received_bytes_, bytes); }
  // Of a message of which more will come.
  void received_part(std::uint64_t bytes) { add(received_bytes_, bytes); }
  void missing(std::uint64_t bytes) { add(missing_bytes_, bytes); }
  void waited() { add(waits_, 1); }
  // What the kernel tells of the connection so far.
  void kernel(std::uint64_t retransmitted, std::uint64_t marked) {
    retransmitted_.store(retransmitted, std::memory_order_relaxed);
    marked_.store(marked, std::memory_order_relaxed);
  }

  ChannelTraffic read() const;
  std::uint64_t retransmitted() const { return retransmitted_.load(std::memory_order_relaxed); }
  std::uint64_t marked() const { return marked_.load(std::memory_order_relaxed); }

 private:
  using Count = std::atomic<std::uint64_t>;
  static void add(Count& count, std::uint64_t more) {
    count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  Count sent_messages_{0}, sent_bytes_{0}, received_messages_{0}, received_bytes_{0};
  Count missing_bytes_{0}, waits_{0}, retransmitted_{0}, marked_{0};
};

class TrafficBook {
 public:
  static constexpr std::size_t kMostPeers = 1024;  // with a line of their own; and as many classes

  // A channel's account while it is open; its sums stay in the book afterwards. The book outlives it.
  class Entry {
   public:
    Entry() = default;
    ~Entry() { close(); }
    Entry(Entry&& other) noexcept { *this = std::move(other); }
    Entry& operator=(Entry&& other) noexcept {
      std::swap(book_, other.book_);
      account_.swap(other.account_);
      return *this;
    }
    TrafficAccount* operator->() const { return account_.get(); }

   private:
    friend class TrafficBook;
    void close();
    TrafficBook* book_ = nullptr;
    std::unique_ptr<TrafficAccount> account_;
  };

  // Any thread.
  Entry open(int traffic_class, const std::string& host, int rank);
  // Fills total, classes, peers, retransmitted and marked. Any thread.
  void fill(DeviceCounters& counters) const;

 private:
  using Peer = std::pair<std::string, int>;
  struct Live {
    int traffic_class;
    Peer peer;
  };
  struct Sums {
    ChannelTraffic total;
    std::map<int, ChannelTraffic> classes;
    std::map<Peer, PeerTraffic> peers;
    std::uint64_t retransmitted = 0, marked = 0;
    void add(const Live& live, const TrafficAccount& account, bool open);
  };
  void close(const TrafficAccount& account);

  mutable std::mutex mutex_;
  std::map<const TrafficAccount*, Live> live_;
  Sums over_;  // of channels that are closed
};

}  // namespace clustar::transport
