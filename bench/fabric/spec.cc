#include "bench/fabric/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

#include "bench/fabric/places.h"
#include "bench/fabric/topology.h"

namespace clustar::bench::fabric {
namespace {

constexpr const char* kRatesAllowed = "allowed: 1M to 400G in bit/s (as 200M, 1G, 2.5G, 10gbit), or off for no shaping";
constexpr const char* kDelaysAllowed = "allowed: 0 to 100ms, as 800ns, 50us, 1.5ms";
// From the edge to the core.
constexpr std::string_view kSwitchWords[] = {"edge", "tor", "leaf", "agg", "spine", "core"};
constexpr const char* kSizesAllowed = "allowed: bytes, as 125000, 100k, 64Ki, 2M";

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// Splits "2.5gbit" into 2.5 and "gbit"; false when there is no number in front.
bool split_number(const std::string& text, double& number, std::string& unit) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  unit.assign(rest, end);
  return error == std::errc() && std::isfinite(number) && number >= 0;
}

// 0 to limit - 1 as people write it, without leading zeros; -1 otherwise.
int plain_number(std::string_view text, int limit) {
  int number = -1;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool ok = error == std::errc() && rest == text.data() + text.size() && number >= 0 && number < limit;
  return ok && text == std::to_string(number) ? number : -1;
}

tl::unexpected<Error> wrong(const std::string& message) { return fail(ErrorCode::kInvalidArgument, message); }

bool is_name_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

Result<std::uint64_t> parse_rate(const std::string& text) {
  const std::string word = lower(text);
  if (word == "off") return std::uint64_t{0};
  double number = 0;
  std::string unit;
  if (!split_number(word, number, unit)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a rate; {}", text, kRatesAllowed));
  }
  for (const std::string_view suffix : {"bit/s", "bits", "bit"}) {
    if (unit.ends_with(suffix)) {
      unit.resize(unit.size() - suffix.size());
      break;
    }
  }
  const double scale = unit.empty() ? 1 : unit == "k" ? 1e3 : unit == "m" ? 1e6 : unit == "g" ? 1e9 : 0;
  const double bps = std::round(number * scale);
  if (scale == 0 || bps < static_cast<double>(kMinRateBps) || bps > static_cast<double>(kMaxRateBps)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a rate for a port; {}", text, kRatesAllowed));
  }
  return static_cast<std::uint64_t>(bps);
}

Result<std::uint64_t> parse_size(const std::string& text) {
  double number = 0;
  std::string unit;
  const bool is_number = split_number(lower(text), number, unit);
  if (unit.ends_with('b')) unit.pop_back();
  const bool binary = unit.ends_with('i');
  if (binary) unit.pop_back();
  const int power = unit.empty() ? 0 : unit == "k" ? 1 : unit == "m" ? 2 : unit == "g" ? 3 : -1;
  if (!is_number || power < 0 || (binary && power == 0)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a size; {}", text, kSizesAllowed));
  }
  const double bytes = std::round(number * std::pow(binary ? 1024.0 : 1000.0, power));
  if (bytes > 1e15) return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is too large; {}", text, kSizesAllowed));
  return static_cast<std::uint64_t>(bytes);
}

Result<std::uint64_t> parse_delay(const std::string& text) {
  double number = 0;
  std::string unit;
  const bool is_number = split_number(lower(text), number, unit);
  const double scale = unit == "ns" ? 1 : unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit.empty() && number == 0 ? 1 : 0;
  if (!is_number || scale == 0 || std::round(number * scale) > static_cast<double>(kMaxDelayNs)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a delay; {}", text, kDelaysAllowed));
  }
  return static_cast<std::uint64_t>(std::round(number * scale));
}

std::string delay_text(std::uint64_t ns) {
  if (ns == 0) return "0";
  const auto value = static_cast<double>(ns);
  return ns % 1'000 != 0       ? fmt::format("{}ns", ns)
         : ns % 1'000'000 != 0 ? fmt::format("{}us", value / 1e3)
                               : fmt::format("{}ms", value / 1e6);
}

const char* to_string(DelayBy by) {
  switch (by) {
    case DelayBy::kAuto: return "auto";
    case DelayBy::kNetem: return "netem";
    case DelayBy::kForwarder: return "forwarder";
  }
  return "?";
}

Result<DelayBy> parse_delay_by(const std::string& text) {
  for (const DelayBy by : {DelayBy::kAuto, DelayBy::kNetem, DelayBy::kForwarder}) {
    if (text == to_string(by)) return by;
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' carries no delay; allowed: netem, forwarder, auto (netem where the kernel has it)", text));
}

std::string rate_text(std::uint64_t bps) {
  if (bps == 0) return "off";
  if (bps >= 1'000'000'000 && bps % 1'000'000 == 0) return fmt::format("{}G", static_cast<double>(bps) / 1e9);
  if (bps % 1'000 == 0) return fmt::format("{}M", static_cast<double>(bps) / 1e6);
  return std::to_string(bps);
}

Result<void> check_name(const std::string& name) {
  const bool ok = !name.empty() && name.size() <= 32 && is_name_letter(name.front()) && is_name_letter(name.back()) &&
                  std::all_of(name.begin(), name.end(), [](char c) { return c == '-' || is_name_letter(c); });
  if (ok) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' cannot name a fabric; allowed: 1 to 32 of a-z, 0-9 and -, with a letter or digit first "
                          "and last",
                          name));
}

namespace {

// Rate, buffer, MTU and delay of a port or of all of them.
Result<void> check_line(std::uint64_t& rate_bps, std::uint64_t& buffer_bytes, int mtu, std::uint64_t delay_ns) {
  if (mtu < kMinMtu || mtu > kMaxMtu) return wrong(fmt::format("MTU {}; allowed: {} to {}", mtu, kMinMtu, kMaxMtu));
  if (delay_ns > kMaxDelayNs) return wrong(fmt::format("a delay of {} ns; {}", delay_ns, kDelaysAllowed));
  if (rate_bps == 0) {
    if (buffer_bytes != 0) return wrong("a buffer needs a rate: without one nothing waits at a port");
    return {};
  }
  if (rate_bps < kMinRateBps || rate_bps > kMaxRateBps) {
    return wrong(fmt::format("{} bit/s; {}", rate_bps, kRatesAllowed));
  }
  if (rate_bps % 8 != 0) rate_bps -= rate_bps % 8;  // the kernel counts bytes per second
  if (buffer_bytes == 0) buffer_bytes = default_buffer_bytes(rate_bps);
  if (buffer_bytes < frame_bytes(mtu) || buffer_bytes > kMaxBufferBytes) {
    return wrong(fmt::format("a buffer of {} bytes; allowed: {} (one frame of this MTU) to {}", buffer_bytes,
                             frame_bytes(mtu), kMaxBufferBytes));
  }
  return {};
}

Result<FabricSpec> checked_tiers(FabricSpec spec) {
  if (spec.leaves == 0) spec.leaves = kDefaultLeaves;
  if (spec.spines < 1 || spec.spines > 64) return wrong(fmt::format("{} spines; allowed: 1 to 64", spec.spines));
  if (spec.leaves < 2 || spec.leaves > std::min(spec.hosts, 64)) {
    return wrong(
        fmt::format("{} leaves; allowed: 2 to {} (one host each at least)", spec.leaves, std::min(spec.hosts, 64)));
  }
  if (spec.rate_bps == 0 && spec.uplink_rate_bps == 0) {
    if (spec.uplink_buffer_bytes != 0) return wrong("an uplink buffer needs a rate of the uplinks");
    return spec;
  }
  if (spec.uplink_rate_bps == 0) {
    const int per_leaf = (spec.hosts + spec.leaves - 1) / spec.leaves;
    const double even = static_cast<double>(spec.rate_bps) * per_leaf / spec.spines;
    spec.uplink_rate_bps = static_cast<std::uint64_t>(
        std::clamp(even, static_cast<double>(kMinRateBps), static_cast<double>(kMaxRateBps)));
  }
  const auto ok = check_line(spec.uplink_rate_bps, spec.uplink_buffer_bytes, spec.mtu, spec.delay_ns);
  if (!ok) return wrong("uplinks: " + ok.error().message);
  return spec;
}

Result<FabricSpec> checked_links(FabricSpec spec) {
  if (spec.spines != 0 || spec.leaves != 0) return wrong("links of one's own and tiers of switches exclude each other");
  for (LinkSpec& link : spec.links) {
    const auto ok = check_line(link.rate_bps, link.buffer_bytes, link.mtu, link.delay_ns);
    if (!ok) return wrong(fmt::format("link {} - {}: {}", link.a, link.b, ok.error().message));
    if (node_rank(link.a) > node_rank(link.b)) std::swap(link.a, link.b);
  }
  const auto by_rank = [](const std::string& x, const std::string& y) { return node_rank(x) < node_rank(y); };
  std::sort(spec.switches.begin(), spec.switches.end(), by_rank);
  std::sort(spec.links.begin(), spec.links.end(), [](const LinkSpec& x, const LinkSpec& y) {
    return std::pair(node_rank(x.a), node_rank(x.b)) < std::pair(node_rank(y.a), node_rank(y.b));
  });
  if (const auto ok = check_topology(spec.hosts, spec.switches, spec.links); !ok) return tl::unexpected(ok.error());
  const LinkSpec& first = spec.links.front();
  spec.rate_bps = first.rate_bps;
  spec.buffer_bytes = first.buffer_bytes;
  spec.mtu = first.mtu;
  spec.delay_ns = first.delay_ns;
  return spec;
}

}  // namespace

namespace {

Result<FabricSpec> checked_form(FabricSpec spec) {
  if (const auto ok = check_name(spec.name); !ok) return tl::unexpected(ok.error());
  if (spec.hosts < kMinHosts || spec.hosts > kMaxHosts) {
    return wrong(fmt::format("{} hosts; allowed: {} to {}", spec.hosts, kMinHosts, kMaxHosts));
  }
  if (!spec.links.empty()) return checked_links(std::move(spec));
  const auto ok = check_line(spec.rate_bps, spec.buffer_bytes, spec.mtu, spec.delay_ns);
  if (!ok) return tl::unexpected(ok.error());
  if (spec.spines != 0) return checked_tiers(std::move(spec));
  if (spec.leaves != 0 || spec.uplink_rate_bps != 0 || spec.uplink_buffer_bytes != 0) {
    return wrong("leaves and uplinks need spines (--spine)");
  }
  return spec;
}

std::string rules_text(const FabricSpec& spec) {
  if (spec.rules == SwitchRules()) return "";
  std::vector<std::string> places;
  for (const SwitchPort& port : switch_ports(topology_of(spec))) {
    if (spec.rules.of(port_place(port)) != PortRules()) places.push_back(port_place(port));
  }
  if (places.empty()) return "";
  const PortRules& first = spec.rules.of(places.front());
  const bool same =
      std::all_of(places.begin(), places.end(), [&](const auto& one) { return spec.rules.of(one) == first; });
  const bool all = places.size() == switch_ports(topology_of(spec)).size();
  const std::string what = same ? describe(first) : "rules of several kinds";
  if (all) return fmt::format(", {} at every port", what);
  return places.size() <= 4 ? fmt::format(", {} at {}", what, fmt::join(places, ", "))
                            : fmt::format(", {} at {} ports", what, places.size());
}

}  // namespace

Result<FabricSpec> checked(FabricSpec spec) {
  auto form = checked_form(std::move(spec));
  if (!form) return form;
  if (form->delay_by != DelayBy::kAuto && !topology_of(*form).has_delay()) {
    return wrong(
        fmt::format("delay-by {} without a delay; give links one (delay) or leave it out", to_string(form->delay_by)));
  }
  auto rules = checked(form->rules, topology_of(*form));
  if (!rules) return tl::unexpected(rules.error());
  form->rules = std::move(*rules);
  return form;
}

Result<void> check_switch_name(const std::string& name) {
  if (name == kSingleSwitch || node_rank(name) >= kMaxHosts) return {};
  return wrong(
      fmt::format("'{}' cannot name a switch; allowed: {} with a number from 0 to {} (leaf0, spine1; each is a "
                  "router), or {} for a single one, a bridge",
                  name, fmt::join(kSwitchWords, ", "), kMaxSwitches - 1, kSingleSwitch));
}

int node_rank(const std::string& name) {
  const int host = host_number(name);
  if (host >= 0) return host;
  int rank = kMaxHosts;
  for (const std::string_view word : kSwitchWords) {
    const int number =
        name.starts_with(word) ? plain_number(std::string_view(name).substr(word.size()), kMaxSwitches) : -1;
    if (number >= 0) return rank + number;
    rank += kMaxSwitches;
  }
  return name == kSingleSwitch ? rank : -1;
}

std::uint64_t default_buffer_bytes(std::uint64_t rate_bps) {
  return rate_bps == 0 ? 0 : std::max<std::uint64_t>(100'000, rate_bps / 8 / 200);
}

std::uint64_t burst_bytes(std::uint64_t rate_bps, int mtu) {
  return std::max<std::uint64_t>(10 * frame_bytes(mtu), rate_bps / 8 / 20'000);
}

std::string host_namespace(const std::string& fabric, int host) { return fmt::format("clustar-{}-h{}", fabric, host); }
std::string switch_namespace(const std::string& fabric) { return fmt::format("clustar-{}-sw", fabric); }
std::string switch_namespace(const std::string& fabric, const std::string& node) {
  return fmt::format("clustar-{}-{}", fabric, node);
}
std::string wire_namespace(const std::string& fabric) { return fmt::format("clustar-{}-wire", fabric); }
std::string host_address(int host) { return fmt::format("10.88.0.{}", host + 1); }
std::string switch_address(int index) { return fmt::format("10.88.1.{}", index + 1); }
std::string host_mac(int host) { return fmt::format("02:58:00:00:00:{:02x}", host + 1); }
std::string port_name(int host) { return fmt::format("port{}", host); }
std::string port_name(const std::string& node) { return fmt::format("to-{}", node); }
std::string host_name(int host) { return fmt::format("h{}", host); }
int host_number(const std::string& node) {
  return node.starts_with('h') ? plain_number(std::string_view(node).substr(1), kMaxHosts) : -1;
}

std::string describe(const FabricSpec& spec) {
  const auto line = [](std::uint64_t rate_bps, std::uint64_t buffer_bytes) {
    return rate_bps == 0
               ? "no shaping"
               : fmt::format("{}bit/s per port and direction, buffer {} B", rate_text(rate_bps), buffer_bytes);
  };
  std::string text = fmt::format("{} hosts, {}, MTU {}", spec.hosts, line(spec.rate_bps, spec.buffer_bytes), spec.mtu);
  if (spec.delay_ns != 0) text += fmt::format(", {} per link and direction", delay_text(spec.delay_ns));
  if (spec.spines != 0) {
    text += fmt::format("; {} leaves x {} spines, uplinks: {}", spec.leaves, spec.spines,
                        line(spec.uplink_rate_bps, spec.uplink_buffer_bytes));
  }
  if (!spec.links.empty()) {
    text +=
        fmt::format(" (of host 0); {} switches, {} links of their own kinds", spec.switches.size(), spec.links.size());
  }
  return text + rules_text(spec);
}

}  // namespace clustar::bench::fabric
