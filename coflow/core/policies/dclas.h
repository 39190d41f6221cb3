// Coflows of unknown size: D-CLAS (Aalo; Chowdhury and Stoica, SIGCOMM 2015), with demotion at the moment when a limit
// is passed. Queues by bytes sent with exponential limits, strict priority between them, first in first out in each,
// max-min fairness inside a coflow.
#pragma once

#include "coflow/core/priority.h"
#include "coflow/core/scheduler.h"

namespace clustar::coflow {

struct DclasOptions {
  // Factor 2 has no decade's edge that a trace's sizes may lie at; the first limit is Aalo's.
  int queues = 24;
  double first_limit = 10e6;  // bytes
  double factor = 2;
  // Each sender by itself, by what it sent of the coflow and with limits divided by the number of its senders: what
  // remains possible without a coordinator.
  bool local = false;
};

class Dclas final : public Scheduler {
 public:
  Dclas(const Table& table, const DclasOptions& options);

  bool reallocates_at_flow_ends() const override { return true; }
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId flow, TimePoint now) override;
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId coflow, TimePoint now) override;
  Allocation allocate(TimePoint now) override;
  std::optional<TimePoint> next_timeout(TimePoint now) const override;

 private:
  // What is demoted as one: a coflow, or what one sender sends of it.
  struct Part {
    double sent = 0;
    double rate = 0;
    int queue = 0;
  };
  struct Active {
    CoflowId coflow;
    std::vector<Part> parts;
  };
  double limit(const Active& active, int queue) const;
  void demote(Active& active) const;
  void serve(Active& active, int queue);

  const Table& table_;
  const DclasOptions options_;
  std::vector<Active> active_;  // in the order of their arrival
  StrictPriority priority_;
  std::vector<bool> chosen_;
};

}  // namespace clustar::coflow
