#include "paraexpress/tolerant/core/average.h"

#include <algorithm>
#include <cstring>

namespace clustar::paraexpress::tolerant {
namespace {

// From this element on so much more or less is missing.
struct Edge {
  std::uint64_t at = 0;
  std::int64_t contributions = 0;
  std::int64_t weight = 0;
};

template <class T>
void scale(std::byte* out, const ElementRange& range, double factor) {
  for (std::uint64_t i = range.begin; i < range.end; ++i) {
    T value;
    std::memcpy(&value, out + i * sizeof(T), sizeof value);
    value = static_cast<T>(static_cast<double>(value) * factor);
    std::memcpy(out + i * sizeof(T), &value, sizeof value);
  }
}

std::vector<Edge> edges_of(std::span<const Given> given, std::uint64_t count) {
  std::vector<Edge> edges;
  for (const Given& one : given) {
    for (const ElementRange& range : one.missing) {
      edges.push_back({range.begin, -1, -static_cast<std::int64_t>(one.weight)});
      edges.push_back({range.end, 1, one.weight});
    }
  }
  edges.push_back({count, 0, 0});
  std::ranges::sort(edges, {}, &Edge::at);
  return edges;
}

// Calls `run` for each range of elements of which equally much came.
template <class Run>
void for_each_range(std::span<const Given> given, std::uint64_t count, const Run& run) {
  auto contributions = static_cast<std::int64_t>(given.size());
  std::int64_t weight = 0;
  for (const Given& one : given) weight += one.weight;
  std::uint64_t from = 0;
  for (const Edge& edge : edges_of(given, count)) {
    const ElementRange range{from, std::min(edge.at, count)};
    if (range.end > range.begin) {
      run(range, contributions, weight);
      from = range.end;
    }
    contributions += edge.contributions;
    weight += edge.weight;
  }
}

std::int64_t quorum_of(std::span<const Given> given, const AverageTerms& terms) {
  return std::min<std::int64_t>(terms.quorum, static_cast<std::int64_t>(given.size()));
}

}  // namespace

std::vector<ElementRange> left_out(std::span<const Given> given, std::uint64_t count, const AverageTerms& terms) {
  std::vector<ElementRange> all;
  for_each_range(given, count, [&](const ElementRange& range, std::int64_t contributions, std::int64_t) {
    if (contributions >= quorum_of(given, terms)) return;
    if (!all.empty() && all.back().end == range.begin) {
      all.back().end = range.end;
    } else {
      all.push_back(range);
    }
  });
  return all;
}

void average_into(std::byte* out, std::span<const Given> given, std::uint64_t count, DataType type,
                  const AverageTerms& terms) {
  const std::size_t element = element_bytes(type);
  if (given.empty()) {
    std::memset(out, 0, count * element);
    return;
  }
  std::vector<const void*> inputs;
  for (const Given& one : given) inputs.push_back(one.elements);
  sum_into(out, inputs, count, type);
  for_each_range(given, count, [&](const ElementRange& range, std::int64_t contributions, std::int64_t weight) {
    if (contributions < quorum_of(given, terms)) {
      std::memset(out + range.begin * element, 0, range.size() * element);
    } else if (terms.scales && weight != terms.ranks && weight > 0) {
      const double factor = static_cast<double>(terms.ranks) / static_cast<double>(weight);
      type == DataType::kFloat64 ? scale<double>(out, range, factor) : scale<float>(out, range, factor);
    }
  });
}

std::vector<ElementRange> elements_of(std::span<const ElementRange> bytes, std::size_t element, std::uint64_t count) {
  std::vector<ElementRange> ranges;
  for (const ElementRange& one : bytes) {
    const std::uint64_t begin = one.begin / element;
    const std::uint64_t end = std::min(count, (one.end + element - 1) / element);
    if (begin < end && one.begin < one.end) ranges.push_back({begin, end});
  }
  std::ranges::sort(ranges, {}, &ElementRange::begin);
  std::vector<ElementRange> joined;
  for (const ElementRange& one : ranges) {
    if (!joined.empty() && one.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, one.end);
    else
      joined.push_back(one);
  }
  return joined;
}

}  // namespace clustar::paraexpress::tolerant
