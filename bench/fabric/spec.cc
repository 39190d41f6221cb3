#include "bench/fabric/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

namespace clustar::bench::fabric {
namespace {

constexpr const char* kRatesAllowed = "allowed: 1M to 400G in bit/s (as 200M, 1G, 2.5G, 10gbit), or off for no shaping";
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

Result<FabricSpec> checked(FabricSpec spec) {
  if (const auto ok = check_name(spec.name); !ok) return tl::unexpected(ok.error());
  const auto wrong = [](const std::string& message) { return fail(ErrorCode::kInvalidArgument, message); };
  if (spec.hosts < kMinHosts || spec.hosts > kMaxHosts) {
    return wrong(fmt::format("{} hosts; allowed: {} to {}", spec.hosts, kMinHosts, kMaxHosts));
  }
  if (spec.mtu < kMinMtu || spec.mtu > kMaxMtu) {
    return wrong(fmt::format("MTU {}; allowed: {} to {}", spec.mtu, kMinMtu, kMaxMtu));
  }
  if (spec.rate_bps == 0) {
    if (spec.buffer_bytes != 0) return wrong("a buffer needs a rate: without one nothing waits at a port");
    return spec;
  }
  if (spec.rate_bps < kMinRateBps || spec.rate_bps > kMaxRateBps) {
    return wrong(fmt::format("{} bit/s; {}", spec.rate_bps, kRatesAllowed));
  }
  if (spec.rate_bps % 8 != 0) spec.rate_bps -= spec.rate_bps % 8;  // the kernel counts bytes per second
  if (spec.buffer_bytes == 0) spec.buffer_bytes = default_buffer_bytes(spec.rate_bps);
  if (spec.buffer_bytes < frame_bytes(spec.mtu) || spec.buffer_bytes > kMaxBufferBytes) {
    return wrong(fmt::format("a buffer of {} bytes; allowed: {} (one frame of this MTU) to {}", spec.buffer_bytes,
                             frame_bytes(spec.mtu), kMaxBufferBytes));
  }
  return spec;
}

std::uint64_t default_buffer_bytes(std::uint64_t rate_bps) {
  return rate_bps == 0 ? 0 : std::max<std::uint64_t>(100'000, rate_bps / 8 / 200);
}

std::uint64_t burst_bytes(std::uint64_t rate_bps, int mtu) {
  return std::max<std::uint64_t>(10 * frame_bytes(mtu), rate_bps / 8 / 20'000);
}

std::string host_namespace(const std::string& fabric, int host) { return fmt::format("clustar-{}-h{}", fabric, host); }
std::string switch_namespace(const std::string& fabric) { return fmt::format("clustar-{}-sw", fabric); }
std::string host_address(int host) { return fmt::format("10.88.0.{}", host + 1); }
std::string host_mac(int host) { return fmt::format("02:58:00:00:00:{:02x}", host + 1); }
std::string port_name(int host) { return fmt::format("port{}", host); }

std::string describe(const FabricSpec& spec) {
  const std::string line = spec.rate_bps == 0 ? "no shaping"
                                              : fmt::format("{}bit/s per port and direction, buffer {} B",
                                                            rate_text(spec.rate_bps), spec.buffer_bytes);
  return fmt::format("{} hosts, {}, MTU {}", spec.hosts, line, spec.mtu);
}

}  // namespace clustar::bench::fabric
