// BSSI (bottleneck, select, scale, iterate): the order of Sincronia (Agarwal et al., SIGCOMM 2018, section 3.2), whose
// weighted completion times are at most four times the best with any allocation that keeps it and wastes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace clustar::coflow {

// One coflow's bytes at ports; senders and receivers are numbered together, each number at most once.
struct BssiItem {
  struct Load {
    std::uint32_t port = 0;
    double bytes = 0;  // above 0
  };
  std::span<const Load> loads;
  double weight = 1;
};

// From the last place to the first: of the coflows at the port with most bytes, the one with least weight per byte
// there goes last, and what it saves there is taken from the others' weights. Indices into `items`, first to serve
// first. Equal ones keep their order. Time: O(loads + items * (ports + items at the bottleneck)).
class BssiOrder {
 public:
  explicit BssiOrder(std::size_t ports);
  std::span<const std::uint32_t> operator()(std::span<const BssiItem> items);

 private:
  struct Entry {
    std::uint32_t item;
    double bytes;
  };
  struct Port {
    double bytes = 0;
    std::vector<Entry> entries;  // of items without a place, and of some that have got one since
  };
  std::optional<std::uint32_t> lightest(Port& port);

  std::vector<Port> ports_;
  std::vector<double> weights_;
  std::vector<bool> placed_;
  std::vector<std::uint32_t> order_;
};

}  // namespace clustar::coflow
