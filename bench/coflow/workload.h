// What a replay feeds to a scheduler: coflows by the time of their arrival.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "coflow/core/table.h"

namespace clustar::bench::coflow {

// Of a file, or generated: arrivals do not depend on what ends when.
struct Trace {
  std::string name{};
  std::size_t ports = 0;
  std::vector<clustar::coflow::CoflowSpec> coflows{};  // by arrival; equal ones in the file's order
};

// Of the busiest port and direction: its bytes over what it can carry from the first arrival to the last; and the mean
// of all ports and both directions. 0 without a span.
struct Load {
  double busiest = 0;
  double mean = 0;
};
Load load_of(const Trace& trace, double bytes_per_s);

class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::size_t ports() const = 0;
  // Nothing: none until a coflow ends, or at all. After reached() of that time there may be a later one instead.
  virtual std::optional<TimePoint> next_arrival() const = 0;
  virtual void reached(TimePoint /*now*/) {}                           // time has come so far; never less than before
  virtual clustar::coflow::CoflowSpec take() = 0;                      // the one of next_arrival(), when it was reached
  virtual void ended(std::size_t /*nth taken*/, TimePoint /*now*/) {}  // it may release others
};

class TraceWorkload final : public Workload {
 public:
  explicit TraceWorkload(const Trace& trace) : trace_(trace) {}
  std::size_t ports() const override { return trace_.ports; }
  std::optional<TimePoint> next_arrival() const override {
    if (next_ == trace_.coflows.size()) return std::nullopt;
    return trace_.coflows[next_].arrival;
  }
  clustar::coflow::CoflowSpec take() override { return trace_.coflows[next_++]; }

 private:
  const Trace& trace_;
  std::size_t next_ = 0;
};

}  // namespace clustar::bench::coflow
