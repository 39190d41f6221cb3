// CoflowSim's sharing: each flow gets the lesser of equal shares of what is free at its sender and at its receiver.
// What a flow cannot use of the larger one stays free.
#pragma once

#include <span>
#include <vector>

#include "coflow/core/rates.h"

namespace clustar::coflow {

class EqualShares {
 public:
  explicit EqualShares(std::size_t ports);

  // Among the unfinished flows of these coflows whose ports both have more than `full`; takes what it gives from
  // `free`.
  void give(const Table& table, std::span<const CoflowId> coflows, double full, FreePorts& free, Rates& rates);

 private:
  struct Side {
    std::vector<double> flows, used;  // per port
  };
  Side out_, in_;
};

}  // namespace clustar::coflow
