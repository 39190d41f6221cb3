// Which MAC belongs to which address of the subnet, by asking (RFC 826). Pure: time is an argument, and what is to be
// sent is polled.
//
//   want() -> asking --answer--> known --fresh_for--> checking --answer--> known
//               |                                        |
//               +--asks without an answer--> silent <----+     silent asks once every `rest`, as long as it is wanted
//
// While it is checking, the MAC that was known counts. What nobody wants any more stays known as long as it is fresh: a
// peer that leaves often comes again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/time.h"
#include "transport/io/dpdk/core/ethernet.h"

namespace clustar::transport::io::dpdk {

struct NeighbourOptions {
  unsigned asks = 5;  // until it is silent
  Duration ask_again = std::chrono::milliseconds(200);
  Duration fresh_for = std::chrono::seconds(30);
  Duration rest = std::chrono::seconds(1);
  std::size_t most = 65536;
};

class Neighbours {
 public:
  using Id = std::uint32_t;
  enum class State : std::uint8_t { kUnused, kAsking, kKnown, kChecking, kSilent };
  static constexpr TimePoint kNever = TimePoint::max();

  struct Ask {
    Ipv4 ip = 0;
    std::optional<Mac> mac{};  // who had it; nothing: ask all
  };

  explicit Neighbours(const NeighbourOptions& options) : options_(options) {}

  // Each is to be followed by one forget(). Nothing: as many as may be are wanted.
  std::optional<Id> want(Ipv4 ip, TimePoint now);
  void forget(Id id);

  // Null: not known, and what goes there has to wait.
  const Mac* mac(Id id) const {
    const Entry& entry = entries_[id];
    return entry.state == State::kKnown || entry.state == State::kChecking ? &entry.mac : nullptr;
  }
  State state(Id id) const { return entries_[id].state; }

  // `mac` says that it has `ip`: an answer, a request, or unasked. Of others than the wanted nothing is kept. Whose MAC
  // became known or another.
  std::optional<Id> on_claim(Ipv4 ip, const Mac& mac, TimePoint now);
  void on_timeout(TimePoint now);
  TimePoint next_timeout() const { return next_; }

  std::optional<Ask> poll_ask();
  // Became silent since: what waits for it has no way.
  std::optional<Id> poll_silent();

  bool is_consistent() const;

 private:
  struct Entry {
    State state = State::kUnused;
    Ipv4 ip = 0;
    Mac mac{};
    std::uint32_t wanted = 0;
    unsigned asked = 0;
    TimePoint due = kNever;  // what the state is left at
  };
  void ask(Entry& entry, TimePoint now);
  void remove(Id id);
  bool make_room();
  void elapse(Id id, TimePoint now);
  void renew_next();

  const NeighbourOptions options_;
  std::vector<Entry> entries_;
  std::vector<Id> unused_;
  std::unordered_map<Ipv4, Id> by_ip_;
  std::deque<Ask> asks_;
  std::deque<Id> silent_;
  TimePoint next_ = kNever;
};

}  // namespace clustar::transport::io::dpdk
