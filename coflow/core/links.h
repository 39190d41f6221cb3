// Which ports of a coflow still have something for each other, as sets: what schedulers go through port by port where
// going through flows would be too slow.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "coflow/core/table.h"

namespace clustar::coflow {

// A set of ports.
class PortSet {
 public:
  explicit PortSet(std::size_t ports = 0) : words_((ports + 63) / 64, 0) {}
  void set(PortId port) { words_[port / 64] |= bit(port); }
  void clear(PortId port) { words_[port / 64] &= ~bit(port); }
  bool test(PortId port) const { return (words_[port / 64] & bit(port)) != 0; }
  bool meets(const PortSet& other) const;
  bool empty() const;
  // How many are in both.
  std::size_t common(const PortSet& other) const;
  // Ports ascending.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for_each_common(*this, visit);
  }
  template <class Visit>
  void for_each_common(const PortSet& other, const Visit& visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i] & other.words_[i]; word != 0; word &= word - 1) {
        visit(static_cast<PortId>(64 * i + static_cast<std::size_t>(std::countr_zero(word))));
      }
    }
  }

 private:
  static std::uint64_t bit(PortId port) { return std::uint64_t{1} << (port % 64); }
  std::vector<std::uint64_t> words_;
};

class Links {
 public:
  // One direction.
  struct Ends {
    PortSet ports;                  // with unfinished flows
    std::vector<PortSet> peers;     // by index of sender or receiver in the coflow
    std::vector<std::uint16_t> at;  // port -> that index, if it is in `ports`
    const PortSet& peers_of(PortId port) const { return peers[at[port]]; }
  };

  // Of the coflow's unfinished flows.
  Links(const Table& table, CoflowId coflow);
  // It is in the table.
  void flow_added(const Table& table, FlowId flow);
  // It is finished in the table.
  void flow_ended(const Table& table, FlowId flow);

  const Ends& out() const { return out_; }
  const Ends& in() const { return in_; }
  // The unfinished flows between two linked ports.
  std::size_t between(const Table& table, PortId src, PortId dst) const {
    return several_ ? count_between(table, src, dst) : 1;
  }
  // Whether some two ports have more than one.
  bool several() const { return several_; }
  // Those between a port and ports of a set.
  std::size_t at(const Table& table, PortId port, bool sends, const PortSet& others) const;

 private:
  std::size_t count_between(const Table& table, PortId src, PortId dst) const;

  static_assert(kMaxPorts <= std::numeric_limits<std::uint16_t>::max());
  CoflowId coflow_;
  bool several_ = false;
  Ends out_, in_;
};

}  // namespace clustar::coflow
