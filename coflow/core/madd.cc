#include "coflow/core/madd.h"

#include <algorithm>

namespace clustar::coflow {

Madd::Madd(const Table& table, Key key, Keys keys, const MaddOptions& options)
    : table_(table),
      key_(key),
      keys_(keys),
      deadlines_(options.deadlines),
      full_(options.full_below > 0 ? options.full_below : table.rate() * 1e-6),
      shares_(table.ports()),
      free_(table),
      used_out_(table.ports(), 0),
      used_in_(table.ports(), 0),
      load_out_(table.ports(), 0) {}

void Madd::arrived(CoflowId coflow, TimePoint) {
  const double key = deadlines_ ? 0 : key_(table_, coflow);
  const auto after = std::find_if(order_.begin(), order_.end(), [&](const Place& one) {
    return key < (keys_ == Keys::kNow && !deadlines_ ? key_(table_, one.coflow) : one.key);
  });
  order_.insert(after, {coflow, key});
}

// Its place is that of its size, which is another.
void Madd::flow_added(FlowId flow, TimePoint now) {
  const CoflowId coflow = table_.flow(flow).coflow;
  const auto place = std::find_if(order_.begin(), order_.end(), [&](const Place& one) { return one.coflow == coflow; });
  if (deadlines_ || key_(table_, coflow) == place->key) return;
  order_.erase(place);
  arrived(coflow, now);
}

void Madd::flow_ended(FlowId flow, TimePoint) { rates_.forget(flow); }

void Madd::departed(CoflowId coflow, TimePoint) {
  std::erase_if(order_, [&](const Place& one) { return one.coflow == coflow; });
}

std::optional<double> Madd::gamma(CoflowId id) {
  const Coflow& coflow = table_.coflow(id);
  std::fill(load_out_.begin(), load_out_.end(), 0);  // summed again, as CoflowSim does
  double most = 0;
  for (const Receiver& receiver : coflow.receivers) {
    if (receiver.left <= 0) continue;
    if (free_.in[receiver.port] <= full_) return std::nullopt;
    most = std::max(most, receiver.left / free_.in[receiver.port]);
    for (const FlowId flow : table_.flows_to(receiver)) load_out_[table_.flow(flow).src] += table_.flow(flow).left;
  }
  for (PortId port = 0; port < table_.ports(); ++port) {
    if (load_out_[port] <= 0) continue;
    if (free_.out[port] <= full_) return std::nullopt;
    most = std::max(most, load_out_[port] / free_.out[port]);
  }
  if (most <= 0) return std::nullopt;
  return most;
}

void Madd::take_used() {
  for (PortId port = 0; port < table_.ports(); ++port) {
    free_.out[port] -= used_out_[port];
    free_.in[port] -= used_in_[port];
    used_out_[port] = used_in_[port] = 0;
  }
}

void Madd::serve(CoflowId id, double gamma) {
  for (const Receiver& receiver : table_.coflow(id).receivers) {
    for (const FlowId at : table_.flows_to(receiver)) {
      const Flow& flow = table_.flow(at);
      const double rate = std::min(flow.left / gamma, free_.between(flow));
      used_out_[flow.src] += rate;
      used_in_[flow.dst] += rate;
      rates_.give(at, rate);
    }
  }
  take_used();
}

void Madd::serve_in_order(TimePoint now) {
  free_ = FreePorts(table_);
  skipped_.clear();
  for (const Place& one : order_) {
    auto needed = gamma(one.coflow);
    if (!needed) {
      skipped_.push_back(one.coflow);
      continue;
    }
    if (deadlines_ && table_.coflow(one.coflow).due) {
      const double until = static_cast<double>((*table_.coflow(one.coflow).due - now).count()) /
                           static_cast<double>(table_.rate_unit().count());
      needed = std::max(*needed, until);
    }
    serve(one.coflow, *needed);
  }
}

bool Madd::admits(CoflowId id, TimePoint now) {
  const Coflow& coflow = table_.coflow(id);
  if (!deadlines_ || !coflow.due) return true;
  rates_.begin();  // and never ended: a trial
  serve_in_order(now);
  const auto needed = gamma(id);
  return needed &&
         *needed * static_cast<double>(table_.rate_unit().count()) <= static_cast<double>((*coflow.due - now).count());
}

void Madd::backfill(TimePoint now) {
  struct Turn {
    std::int64_t left_ms;
    std::size_t place;
    CoflowId coflow;
  };
  std::vector<Turn> turns;
  for (const Place& one : order_) {
    const Coflow& coflow = table_.coflow(one.coflow);
    turns.push_back(
        {(coflow.due.value_or(coflow.arrived) - now) / std::chrono::milliseconds(1), turns.size(), one.coflow});
  }
  std::sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) {
    return a.left_ms != b.left_ms ? a.left_ms < b.left_ms : a.place < b.place;
  });
  for (const Turn& turn : turns) {
    for (const Receiver& receiver : table_.coflow(turn.coflow).receivers) {
      if (free_.in[receiver.port] <= full_) continue;
      for (const FlowId at : table_.flows_to(receiver)) {
        const Flow& flow = table_.flow(at);
        const double rate = free_.between(flow);
        if (rate <= full_) continue;
        rates_.give(at, rate);
        free_.take(flow, rate);
      }
    }
  }
}

Allocation Madd::allocate(TimePoint now) {
  rates_.begin();
  serve_in_order(now);
  shares_.give(table_, skipped_, full_, free_, rates_);
  backfill(now);
  return {rates_.end(), nullptr};
}

}  // namespace clustar::coflow
