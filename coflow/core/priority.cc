#include "coflow/core/priority.h"

#include <algorithm>

namespace clustar::coflow {

StrictPriority::StrictPriority(const Table& table)
    : table_(table), full_(table.rate() * 1e-6), free_(table), filling_(table.ports()) {}

void StrictPriority::begin() {
  rates_.begin();
  free_ = FreePorts(table_);
  senders_free_ = receivers_free_ = table_.ports();
}

template <class Chosen>
void StrictPriority::collect(CoflowId id, const Chosen& chosen) {
  for (const Receiver& receiver : table_.coflow(id).receivers) {
    if (free_.in[receiver.port] <= full_) continue;
    for (const FlowId at : table_.flows_to(receiver)) {
      const Flow& flow = table_.flow(at);
      if (free_.out[flow.src] > full_ && chosen(flow)) flows_.push_back(at);
    }
  }
}

void StrictPriority::fill() {
  if (flows_.empty()) return;
  filling_.fill(table_, flows_, full_, free_, rates_);
  const auto is_free = [&](double rate) { return rate > full_; };
  senders_free_ = static_cast<std::size_t>(std::count_if(free_.out.begin(), free_.out.end(), is_free));
  receivers_free_ = static_cast<std::size_t>(std::count_if(free_.in.begin(), free_.in.end(), is_free));
}

void StrictPriority::serve(std::span<const CoflowId> coflows) {
  flows_.clear();
  for (const CoflowId coflow : coflows) collect(coflow, [](const Flow&) { return true; });
  fill();
}

void StrictPriority::serve_senders(CoflowId coflow, const std::vector<bool>& chosen) {
  flows_.clear();
  collect(coflow, [&](const Flow& flow) { return chosen[flow.sender]; });
  fill();
}

}  // namespace clustar::coflow
