// Max-min fairness among given flows over what is free at the ports: progressive filling (Bertsekas and Gallager, Data
// Networks, section 6.5.2).
#pragma once

#include <span>
#include <vector>

#include "coflow/core/rates.h"

namespace clustar::coflow {

class MaxMinFilling {
 public:
  explicit MaxMinFilling(std::size_t ports);

  // Gives `flows` rates, each at most once, and takes them from `free`. Ports with no more than `full` are full.
  // O(flows + ports in use squared).
  void fill(const Table& table, std::span<const FlowId> flows, double full, FreePorts& free, Rates& rates);

 private:
  struct Side {
    std::vector<std::uint32_t> waiting;  // flows without a rate yet, per port
    std::vector<std::uint32_t> begin;    // of the port's flows in `of`
    std::vector<std::uint32_t> of;       // places in the given flows, by port
    std::vector<PortId> used;            // ports that have any
  };
  void sort(const Table& table, std::span<const FlowId> flows, Side& side, bool out);

  Side out_, in_;
  std::vector<bool> given_;  // by place in the given flows
  std::vector<std::uint32_t> at_;
};

}  // namespace clustar::coflow
