// Max-min fairness among the flows of some coflows over what is free at the ports: progressive filling (Bertsekas and
// Gallager, Data Networks, section 6.5.2), port by port.
#pragma once

#include <span>
#include <vector>

#include "coflow/core/links.h"
#include "coflow/core/rates.h"
#include "coflow/core/scheduler.h"

namespace clustar::coflow {

class MaxMinFilling {
 public:
  explicit MaxMinFilling(const Table& table);

  // Writes shares: each flow gets the lesser of those at its ports. Takes what they get from `free`. Ports with no more
  // than `full` are full, and give 0. Only flows from `senders` count, if there are any.
  // O(flows + ports in use * levels).
  void fill(std::span<const Links* const> coflows, const PortSet* senders, double full, FreePorts& free,
            PortShares& shares);

 private:
  struct Side {
    std::vector<double> waiting;  // flows without a rate yet, per port
    std::vector<PortId> used;     // ports that have any
    PortSet open;                 // ports that are not full
  };
  // The flows at a port that wait, by the port across.
  template <class Visit>
  void for_each_waiting(std::span<const Links* const> coflows, PortId port, bool sends, const Visit& visit) const;
  void open_ports(std::span<const Links* const> coflows, const PortSet* senders, double full, const FreePorts& free);
  void count(std::span<const Links* const> coflows);
  double least_share(Side& side, const std::vector<double>& free) const;

  const Table& table_;
  Side out_, in_;
};

}  // namespace clustar::coflow
