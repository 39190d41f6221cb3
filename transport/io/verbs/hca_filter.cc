#include "transport/io/verbs/hca_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace clustar::transport::io::verbs {

Result<HcaFilter> HcaFilter::parse(std::string_view text) {
  const std::string_view whole = text;
  const auto bad = [&](std::string_view entry) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' in the list of RDMA devices '{}': NAME or NAME:PORT, PORT from 1 to 255, joined by "
                            "commas; in front ^ for all but these, = for exact names",
                            entry, whole));
  };
  HcaFilter filter;
  if (text.starts_with('^')) {
    filter.exclude_ = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    filter.exact_ = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    if (entry.empty()) continue;
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    int port = 0;
    if (colon < entry.size()) {
      const auto [end, error] = std::from_chars(entry.data() + colon + 1, entry.data() + entry.size(), port);
      if (error != std::errc{} || end != entry.data() + entry.size() || port < 1 || port > 255) return bad(entry);
    }
    if (colon == 0) return bad(entry);
    filter.entries_.push_back({std::string(entry.substr(0, colon)), port});
  }
  return filter;
}

bool HcaFilter::matches(std::string_view device, int port) const {
  if (entries_.empty()) return true;
  const bool listed = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return (exact_ ? device == entry.device : device.starts_with(entry.device)) &&
           (entry.port == 0 || entry.port == port || (port == 0 && !exclude_));
  });
  return listed != exclude_;
}

}  // namespace clustar::transport::io::verbs
