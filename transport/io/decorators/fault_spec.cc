#include "transport/io/decorators/fault_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace clustar::transport::io {
namespace {

using Values = std::vector<std::string_view>;

Values split(std::string_view text, char separator) {
  Values parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool set_probability(double& out, std::string_view text) {
  const auto value = number<double>(text);
  if (!value || !(*value >= 0 && *value <= 1)) return false;  // not a number either
  out = *value;
  return true;
}

struct Unit {
  std::string_view name;
  std::int64_t nanoseconds;
};
// "s" last: it ends the others too.
constexpr std::array<Unit, 4> kUnits{{{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};

bool set_time(Duration& out, std::string_view text) {
  const auto unit = std::ranges::find_if(kUnits, [text](const Unit& one) { return text.ends_with(one.name); });
  if (unit == kUnits.end()) return false;
  const auto value = number<double>(text.substr(0, text.size() - unit->name.size()));
  if (!value || !(*value >= 0)) return false;
  const double nanoseconds = *value * static_cast<double>(unit->nanoseconds);
  if (nanoseconds > static_cast<double>(FaultSpec::kMaxTime.count())) return false;
  out = Duration(std::llround(nanoseconds));
  return true;
}

bool set_below(int& out, std::string_view text, int bound) {
  const auto value = number<int>(text);
  if (!value || *value < 0 || *value >= bound) return false;
  out = *value;
  return true;
}

bool set_reorder(FaultSpec& spec, const Values& values) {
  if (values.size() != 2 || !set_probability(spec.reorder, values[0])) return false;
  if (set_time(spec.reorder_time, values[1])) return true;
  const auto packets = number<std::uint32_t>(values[1]);
  if (!packets || *packets == 0 || *packets > FaultSpec::kMaxReorderPackets) return false;
  spec.reorder_packets = *packets;
  return true;
}

bool set_corrupt(FaultSpec& spec, const Values& values) {
  if (values.size() > 2 || !set_probability(spec.corrupt, values[0])) return false;
  if (values.size() == 1) return true;
  spec.corrupt_where = values[1] == "header" ? FaultSpec::Where::kHeader : FaultSpec::Where::kPayload;
  return values[1] == "header" || values[1] == "payload";
}

bool set_direction(FaultSpec& spec, std::string_view value) {
  spec.direction = value == "in"     ? FaultSpec::Direction::kIn
                   : value == "both" ? FaultSpec::Direction::kBoth
                                     : FaultSpec::Direction::kOut;
  return value == "out" || value == "in" || value == "both";
}

struct Key {
  std::string_view name;
  std::string_view allowed;
  bool (*set)(FaultSpec& spec, const Values& values);
};
constexpr std::string_view kProbability = "a probability from 0 to 1";
constexpr std::string_view kTime = "a time such as 100us, with ns, us, ms or s, at most 10s";
constexpr std::array<Key, 11> kKeys{{
    {"loss", kProbability,
     [](FaultSpec& spec, const Values& v) { return v.size() == 1 && set_probability(spec.loss, v[0]); }},
    {"burst", "ENTER/LEAVE/LOSS, three probabilities from 0 to 1",
     [](FaultSpec& spec, const Values& v) {
       return v.size() == 3 && set_probability(spec.burst_enter, v[0]) && set_probability(spec.burst_leave, v[1]) &&
              set_probability(spec.burst_loss, v[2]);
     }},
    {"reorder", "P/PACKETS or P/TIME: a probability from 0 to 1, and 1 to 1024 packets or a time such as 100us",
     set_reorder},
    {"duplicate", kProbability,
     [](FaultSpec& spec, const Values& v) { return v.size() == 1 && set_probability(spec.duplicate, v[0]); }},
    {"corrupt", "a probability from 0 to 1, or that with /header or /payload", set_corrupt},
    {"delay", kTime, [](FaultSpec& spec, const Values& v) { return v.size() == 1 && set_time(spec.delay, v[0]); }},
    {"jitter", kTime, [](FaultSpec& spec, const Values& v) { return v.size() == 1 && set_time(spec.jitter, v[0]); }},
    {"path", "0 to 254",
     [](FaultSpec& spec, const Values& v) { return v.size() == 1 && set_below(spec.path, v[0], 255); }},
    {"class", "0 to 7",
     [](FaultSpec& spec, const Values& v) { return v.size() == 1 && set_below(spec.traffic_class, v[0], 8); }},
    {"direction", "out, in or both",
     [](FaultSpec& spec, const Values& v) { return v.size() == 1 && set_direction(spec, v[0]); }},
    {"seed", "a number from 0 to 2^64 - 1",
     [](FaultSpec& spec, const Values& v) {
       const auto value = v.size() == 1 ? number<std::uint64_t>(v[0]) : std::nullopt;
       spec.seed = value.value_or(1);
       return value.has_value();
     }},
}};

std::string known_keys() {
  std::string all;
  for (const Key& key : kKeys) all += (all.empty() ? "" : ", ") + std::string(key.name);
  return all;
}

tl::unexpected<Error> refuse(std::string_view key, const std::string& reason) {
  return fail(ErrorCode::kInvalidArgument, "fault '" + std::string(key) + "': " + reason);
}

std::string text_of(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string text_of(Duration time) {
  const auto unit = std::find_if(kUnits.rbegin(), kUnits.rend(),
                                 [time](const Unit& one) { return time.count() % one.nanoseconds == 0; });
  return std::to_string(time.count() / unit->nanoseconds) + std::string(unit->name);
}

}  // namespace

Result<FaultSpec> FaultSpec::parse(std::string_view text) {
  FaultSpec spec;
  if (text.empty()) return spec;
  std::array<bool, kKeys.size()> seen{};
  for (const std::string_view item : split(text, ',')) {
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const auto key = std::ranges::find_if(kKeys, [name](const Key& one) { return one.name == name; });
    if (key == kKeys.end()) return refuse(name, "there is no such key; allowed are " + known_keys());
    if (equals == std::string_view::npos) {
      return refuse(name, "has no value; allowed is " + std::string(key->allowed));
    }
    bool& before = seen[static_cast<std::size_t>(key - kKeys.begin())];
    if (before) return refuse(name, "is given twice; allowed is once");
    before = true;
    const std::string_view value = item.substr(equals + 1);
    if (!key->set(spec, split(value, '/'))) {
      return refuse(name, "'" + std::string(value) + "' is not allowed; allowed is " + std::string(key->allowed));
    }
  }
  if (spec.in() && spec.copies()) {
    return refuse("direction",
                  "received packets can only be lost; allowed beside direction=in and both are loss, burst, "
                  "path, class and seed");
  }
  return spec;
}

std::string FaultSpec::to_string() const {
  const FaultSpec usual;
  std::string text;
  const auto add = [&text](std::string_view key, const std::string& value) {
    text += (text.empty() ? "" : ",") + std::string(key) + "=" + value;
  };
  if (loss != usual.loss) add("loss", text_of(loss));
  if (burst_enter != usual.burst_enter || burst_leave != usual.burst_leave || burst_loss != usual.burst_loss) {
    add("burst", text_of(burst_enter) + "/" + text_of(burst_leave) + "/" + text_of(burst_loss));
  }
  if (reorder != usual.reorder || reorder_packets != usual.reorder_packets || reorder_time != usual.reorder_time) {
    const std::string until = reorder_packets > 0 ? std::to_string(reorder_packets) : text_of(reorder_time);
    add("reorder", text_of(reorder) + "/" + until);
  }
  if (duplicate != usual.duplicate) add("duplicate", text_of(duplicate));
  if (corrupt != usual.corrupt || corrupt_where != usual.corrupt_where) {
    add("corrupt", text_of(corrupt) + (corrupt_where == Where::kAny      ? ""
                                       : corrupt_where == Where::kHeader ? "/header"
                                                                         : "/payload"));
  }
  if (delay != usual.delay) add("delay", text_of(delay));
  if (jitter != usual.jitter) add("jitter", text_of(jitter));
  if (path != usual.path) add("path", std::to_string(path));
  if (traffic_class != usual.traffic_class) add("class", std::to_string(traffic_class));
  if (direction != usual.direction) add("direction", direction == Direction::kIn ? "in" : "both");
  if (seed != usual.seed) add("seed", std::to_string(seed));
  return text;
}

}  // namespace clustar::transport::io
