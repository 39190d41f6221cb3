#include "coflow/core/policies/dclas.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace clustar::coflow {

Dclas::Dclas(const Table& table, const DclasOptions& options) : table_(table), options_(options), priority_(table) {}

void Dclas::arrived(CoflowId coflow, TimePoint) {
  const std::size_t parts = options_.local ? table_.coflow(coflow).senders.size() : 1;
  active_.push_back({coflow, std::vector<Part>(parts)});
  priority_.arrived(coflow);
}

void Dclas::flow_added(FlowId flow, TimePoint) {
  const CoflowId coflow = table_.flow(flow).coflow;
  const auto active =
      std::find_if(active_.begin(), active_.end(), [&](const Active& one) { return one.coflow == coflow; });
  if (options_.local) active->parts.resize(table_.coflow(coflow).senders.size());
  priority_.flow_added(flow);
}

void Dclas::flow_ended(FlowId flow, TimePoint) { priority_.flow_ended(flow); }

void Dclas::departed(CoflowId coflow, TimePoint) {
  std::erase_if(active_, [&](const Active& one) { return one.coflow == coflow; });
  priority_.departed(coflow);
}

// Beyond which a part leaves the queue.
double Dclas::limit(const Active& active, int queue) const {
  if (queue + 1 >= options_.queues) return std::numeric_limits<double>::infinity();
  return options_.first_limit * std::pow(options_.factor, queue) * table_.coflow(active.coflow).weight /
         static_cast<double>(active.parts.size());
}

void Dclas::demote(Active& active) const {
  const Coflow& coflow = table_.coflow(active.coflow);
  // A caller that wakes up when a limit is reached finds it missed by a rounding error.
  constexpr double kNearly = 1 - 1e-9;
  for (std::size_t i = 0; i < active.parts.size(); ++i) {
    Part& part = active.parts[i];
    part.rate = 0;
    part.sent = options_.local ? coflow.senders[i].sent : coflow.sent;
    while (part.sent >= kNearly * limit(active, part.queue)) ++part.queue;
  }
}

// Of one queue.
void Dclas::serve(Active& active, int queue) {
  if (!options_.local) {
    Part& whole = active.parts.front();
    if (whole.queue != queue) return;
    priority_.serve({&active.coflow, 1});
    whole.rate = priority_.rate();
    return;
  }
  chosen_.assign(active.parts.size(), false);
  bool any = false;
  for (std::size_t i = 0; i < active.parts.size(); ++i) {
    chosen_[i] = active.parts[i].queue == queue;
    any = any || chosen_[i];
  }
  if (!any) return;
  priority_.serve_senders(active.coflow, chosen_);
  for (std::size_t i = 0; i < active.parts.size(); ++i) {
    if (chosen_[i]) active.parts[i].rate = priority_.rate_out(table_.coflow(active.coflow).senders[i].port);
  }
}

Allocation Dclas::allocate(TimePoint) {
  for (Active& active : active_) demote(active);
  priority_.begin();
  for (int queue = 0; queue < options_.queues; ++queue) {
    for (Active& active : active_) {
      if (!options_.local && !priority_.any_free()) break;
      serve(active, queue);
    }
  }
  return {priority_.end(), nullptr};
}

std::optional<TimePoint> Dclas::next_timeout(TimePoint now) const {
  double soonest = std::numeric_limits<double>::infinity();  // rate_units
  for (const Active& active : active_) {
    for (const Part& part : active.parts) {
      if (part.rate > 0) soonest = std::min(soonest, (limit(active, part.queue) - part.sent) / part.rate);
    }
  }
  const double wait = soonest * static_cast<double>(table_.rate_unit().count());
  constexpr double kForever = 1e18;
  if (!(wait < kForever)) return std::nullopt;
  return now + Duration(static_cast<Duration::rep>(std::ceil(wait)));
}

}  // namespace clustar::coflow
