#include "bench/coflow/benchmark_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

namespace clustar::bench::coflow {
namespace {

constexpr std::size_t kMaxCoflows = 10'000'000;
constexpr std::size_t kMaxTasks = 1'000'000;   // of one coflow and side
constexpr std::size_t kMaxFlows = 20'000'000;  // of the trace
constexpr double kMaxMb = 1e12;
constexpr std::int64_t kMaxMs = 1'000'000'000'000;  // 31 years

// The words of one line, with errors that say where.
class Line {
 public:
  Line(std::string_view text, const std::string& name, std::size_t number)
      : text_(text), name_(name), number_(number) {}

  std::optional<std::string_view> word() {
    while (!text_.empty() && is_space(text_.front())) text_.remove_prefix(1);
    std::size_t end = 0;
    while (end < text_.size() && !is_space(text_[end])) ++end;
    if (end == 0) return std::nullopt;
    const std::string_view word = text_.substr(0, end);
    text_.remove_prefix(end);
    return word;
  }
  tl::unexpected<Error> wrong(const std::string& what) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", name_, number_, what));
  }
  Result<std::int64_t> number(const char* what, std::int64_t least, std::int64_t most) {
    const auto found = word();
    if (!found) return wrong(fmt::format("the line ends where {} was expected", what));
    return number_in(*found, what, least, most);
  }
  Result<std::int64_t> number_in(std::string_view text, const char* what, std::int64_t least, std::int64_t most) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
      return wrong(fmt::format("{} is '{}'; allowed: whole numbers from {} to {}", what, text, least, most));
    }
    return value;
  }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  std::string_view text_;
  const std::string& name_;
  const std::size_t number_;
};

struct Header {
  std::size_t ports = 0;
  std::size_t coflows = 0;
};

Result<Header> read_header(Line line) {
  const auto ports = line.number("the number of ports", 1, clustar::coflow::kMaxPorts);
  if (!ports) return tl::unexpected(ports.error());
  const auto coflows = line.number("the number of coflows", 0, kMaxCoflows);
  if (!coflows) return tl::unexpected(coflows.error());
  if (line.word()) return line.wrong("more than two numbers; expected: ports coflows");
  return Header{static_cast<std::size_t>(*ports), static_cast<std::size_t>(*coflows)};
}

// rack:MB
Result<std::pair<clustar::coflow::PortId, double>> read_reducer(Line& line, std::int64_t last_rack) {
  const auto word = line.word();
  if (!word) return line.wrong("the line ends where a reducer (rack:MB) was expected");
  const std::size_t colon = word->find(':');
  if (colon == std::string_view::npos) {
    return line.wrong(fmt::format("'{}' is no reducer; expected: rack:MB, as 140:48.0", *word));
  }
  const auto rack = line.number_in(word->substr(0, colon), "the rack of a reducer", 0, last_rack);
  if (!rack) return tl::unexpected(rack.error());
  const std::string_view size = word->substr(colon + 1);
  double mb = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), mb);
  if (error != std::errc() || end != size.data() + size.size() || !std::isfinite(mb) || mb < 0 || mb > kMaxMb) {
    return line.wrong(fmt::format("the size of a reducer is '{}' MB; allowed: 0 to {:.0e}", size, kMaxMb));
  }
  return std::pair(static_cast<clustar::coflow::PortId>(*rack), mb);
}

// `room`: flows that it may have.
Result<clustar::coflow::CoflowSpec> read_coflow(Line line, std::size_t ports, std::size_t room,
                                                const BenchmarkOptions& options) {
  constexpr double kMb = 1048576;
  const auto last_rack = static_cast<std::int64_t>(ports) - 1;
  clustar::coflow::CoflowSpec spec;
  const auto label = line.number("the coflow's name", 0, std::numeric_limits<std::int64_t>::max());
  if (!label) return tl::unexpected(label.error());
  spec.label = static_cast<std::uint64_t>(*label);
  const auto arrival = line.number("the arrival in ms", 0, kMaxMs);
  if (!arrival) return tl::unexpected(arrival.error());
  spec.arrival = TimePoint(std::chrono::milliseconds(*arrival));
  const auto mappers = line.number("the number of mappers", 0, kMaxTasks);
  if (!mappers) return tl::unexpected(mappers.error());
  std::set<clustar::coflow::PortId> senders;
  for (std::int64_t i = 0; i < *mappers; ++i) {
    const auto rack = line.number("the rack of a mapper", 0, last_rack);
    if (!rack) return tl::unexpected(rack.error());
    senders.insert(static_cast<clustar::coflow::PortId>(*rack));
  }
  const auto reducers = line.number("the number of reducers", 0, kMaxTasks);
  if (!reducers) return tl::unexpected(reducers.error());
  std::map<clustar::coflow::PortId, double> receivers;
  for (std::int64_t i = 0; i < *reducers; ++i) {
    const auto reducer = read_reducer(line, last_rack);
    if (!reducer) return tl::unexpected(reducer.error());
    receivers[reducer->first] += options.whole_mb ? std::ceil(reducer->second) : reducer->second;
  }
  if (const auto more = line.word()) {
    return line.wrong(fmt::format("'{}' behind the last of {} reducers", *more, *reducers));
  }
  if (senders.size() * receivers.size() > room) {
    return line.wrong(fmt::format(
        "more than {} flows in all; a coflow has one from each rack that maps to each that reduces", kMaxFlows));
  }
  const auto count = static_cast<double>(senders.size());
  for (const auto& [rack, mb] : receivers) {
    const double whole = options.whole_mb && count > 0 ? std::ceil(mb / count) * count : mb;
    for (const auto sender : senders) spec.flows.push_back({sender, rack, whole * kMb / count});
  }
  return spec;
}

}  // namespace

Result<Trace> parse_benchmark(std::string_view text, const std::string& name, const BenchmarkOptions& options) {
  Trace trace;
  trace.name = name;
  std::optional<Header> header;
  std::size_t number = 0, flows = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, end), name, ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!Line(line).word()) continue;
    if (!header) {
      const auto read = read_header(line);
      if (!read) return tl::unexpected(read.error());
      header = *read;
      trace.ports = header->ports;
      continue;
    }
    if (trace.coflows.size() == header->coflows) {
      return line.wrong(fmt::format("another coflow; the first line says {}", header->coflows));
    }
    auto coflow = read_coflow(line, trace.ports, kMaxFlows - flows, options);
    if (!coflow) return tl::unexpected(coflow.error());
    flows += coflow->flows.size();
    trace.coflows.push_back(std::move(*coflow));
  }
  if (!header) return fail(ErrorCode::kInvalidArgument, fmt::format("{}: empty; expected: ports coflows", name));
  if (trace.coflows.size() != header->coflows) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} coflows; the first line says {}", name, trace.coflows.size(), header->coflows));
  }
  std::stable_sort(trace.coflows.begin(), trace.coflows.end(),
                   [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
  return trace;
}

}  // namespace clustar::bench::coflow
