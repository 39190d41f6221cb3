#include "coflow/core/bssi_order.h"

#include <algorithm>
#include <limits>

namespace clustar::coflow {

BssiOrder::BssiOrder(std::size_t ports) : ports_(ports) {}

// The one that goes last of those at the port; the others' weights are scaled.
std::optional<std::uint32_t> BssiOrder::lightest(Port& port) {
  double least = std::numeric_limits<double>::infinity();
  std::optional<std::uint32_t> last;
  std::size_t kept = 0;
  for (const Entry& entry : port.entries) {
    if (placed_[entry.item]) continue;
    port.entries[kept++] = entry;
    const double ratio = weights_[entry.item] / entry.bytes;
    if (ratio > least) continue;  // of equal ones the later
    least = ratio;
    last = entry.item;
  }
  port.entries.resize(kept);
  for (const Entry& entry : port.entries) weights_[entry.item] -= least * entry.bytes;
  return last;
}

std::span<const std::uint32_t> BssiOrder::operator()(std::span<const BssiItem> items) {
  for (Port& port : ports_) {
    port.bytes = 0;
    port.entries.clear();
  }
  weights_.clear();
  placed_.assign(items.size(), false);
  order_.assign(items.size(), 0);
  for (std::uint32_t item = 0; item < items.size(); ++item) {
    weights_.push_back(items[item].weight);
    for (const BssiItem::Load& load : items[item].loads) {
      ports_[load.port].bytes += load.bytes;
      ports_[load.port].entries.push_back({item, load.bytes});
    }
  }
  std::size_t places = items.size();
  while (places > 0) {
    Port& bottleneck =
        *std::max_element(ports_.begin(), ports_.end(), [](const Port& a, const Port& b) { return a.bytes < b.bytes; });
    if (bottleneck.bytes <= 0) break;
    const auto last = lightest(bottleneck);
    if (!last) {
      bottleneck.bytes = 0;  // what rounding left
      continue;
    }
    placed_[*last] = true;
    order_[--places] = *last;
    for (const BssiItem::Load& load : items[*last].loads) ports_[load.port].bytes -= load.bytes;
  }
  // Without bytes: before all others.
  for (auto item = static_cast<std::uint32_t>(items.size()); item-- > 0 && places > 0;) {
    if (!placed_[item]) order_[--places] = item;
  }
  return order_;
}

}  // namespace clustar::coflow
