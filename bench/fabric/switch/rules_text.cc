#include "bench/fabric/switch/rules_text.h"

#include <fmt/format.h>

#include <bitset>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/fabric/spec.h"

namespace clustar::bench::fabric {
namespace {

using ClassSet = std::bitset<kClasses>;

tl::unexpected<Error> wrong(const std::string& text, const char* what, const char* allowed) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not {}; allowed: {}", text, what, allowed));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (std::size_t at = text.find(separator); at != std::string::npos; at = text.find(separator, from)) {
    parts.push_back(text.substr(from, at - from));
    from = at + 1;
  }
  parts.push_back(text.substr(from));
  return parts;
}

// The number in front and what follows it.
std::optional<std::pair<double, std::string_view>> number_of(std::string_view text) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  return std::pair{value, text.substr(static_cast<std::size_t>(rest - text.data()))};
}

std::optional<std::size_t> class_of(const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '7') return std::nullopt;
  return static_cast<std::size_t>(text[0] - '0');
}

Result<ClassSet> parse_classes(const std::string& text) {
  constexpr const char* kAllowed = "a class from 0 to 7, a list as 1,2, a range as 0-6, or all";
  if (text == "all") return ClassSet().set();
  ClassSet set;
  for (const std::string& part : split(text, ',')) {
    const auto ends = split(part, '-');
    const auto first = class_of(ends.front());
    const auto last = class_of(ends.back());
    if (ends.size() > 2 || !first || !last || *first > *last) return wrong(text, "a set of classes", kAllowed);
    for (std::size_t i = *first; i <= *last; ++i) set.set(i);
  }
  return set;
}

// "CLASSES=VALUE"; all classes where there is no "=".
Result<std::pair<ClassSet, std::string>> split_classes(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos) return std::pair{ClassSet().set(), text};
  const auto classes = parse_classes(text.substr(0, at));
  if (!classes) return tl::unexpected(classes.error());
  return std::pair{*classes, text.substr(at + 1)};
}

template <class Change>
void for_each_class(PortRules& rules, const ClassSet& classes, const Change& change) {
  for (std::size_t i = 0; i < rules.classes.size(); ++i) {
    if (classes.test(i)) change(rules.classes[i]);
  }
}

Result<void> named(const char* what, const Result<void>& done) {
  if (done) return done;
  return fail(done.error().code, fmt::format("{}: {}", what, done.error().message));
}

template <class Value>
Result<void> set_one(const std::string& text, Result<Value> (*parse)(const std::string&), Value& value) {
  const auto parsed = parse(text);
  if (!parsed) return tl::unexpected(parsed.error());
  value = *parsed;
  return {};
}

// "5ms" or "5ms-50ms"; `most` is left alone without a range.
template <class Value>
Result<void> set_range(const std::string& text, Result<Value> (*parse)(const std::string&), Value& least, Value& most) {
  const auto ends = split(text, '-');
  if (ends.size() > 2) return fail(ErrorCode::kInvalidArgument, "a range has two ends");
  if (const auto done = set_one(ends[0], parse, least); !done || ends.size() == 1) return done;
  return set_one(ends[1], parse, most);
}

Result<void> apply_losses(const RuleTexts& texts, LossRules& rules) {
  const struct {
    const char* name;
    const std::optional<std::string>& text;
    Result<void> (*set)(LossRules&, const std::string&);
  } all[] = {{"loss", texts.loss, set_loss},
             {"loss-model", texts.loss_model, set_loss_model},
             {"bursts", texts.bursts, set_bursts},
             {"dead", texts.dead, set_dead}};
  for (const auto& one : all) {
    if (!one.text) continue;
    if (const auto done = named(one.name, one.set(rules, *one.text)); !done) return done;
  }
  return {};
}

}  // namespace

Result<double> parse_probability(const std::string& text) {
  if (text == "none") return 0.0;
  const auto number = number_of(text);
  const bool is_percent = number && number->second == "%";
  const double value = number ? number->first / (is_percent ? 100 : 1) : 0;
  if (!number || (!number->second.empty() && !is_percent) || value > 1) {
    return wrong(text, "a probability", "0% to 100%, or 0 to 1, as 1%, 0.01; none");
  }
  return value;
}

Result<std::uint64_t> parse_duration_ns(const std::string& text) {
  const auto number = number_of(text);
  const std::string_view unit = number ? number->second : "";
  const double scale = unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
  if (!number || scale == 0 || number->first * scale > 1e15) {
    return wrong(text, "a duration", "a number with us, ms or s, as 20ms");
  }
  return static_cast<std::uint64_t>(std::llround(number->first * scale));
}

Result<void> set_loss(LossRules& rules, const std::string& text) {
  const auto loss = parse_probability(text);
  if (!loss) return tl::unexpected(loss.error());
  rules.random = *loss;
  return {};
}

Result<void> set_loss_model(LossRules& rules, const std::string& text) {
  constexpr const char* kAllowed =
      "ge:P,R,G,B: chances to become bad and good again, and losses while good and bad, as ge:1%,25%,0,50%; none";
  if (text == "none") {
    rules.gilbert_elliott = {};
    return {};
  }
  const auto parts = split(text.starts_with("ge:") ? text.substr(3) : "", ',');
  if (parts.size() != 4) return wrong(text, "a loss model", kAllowed);
  double values[4];
  for (std::size_t i = 0; i < 4; ++i) {
    const auto value = parse_probability(parts[i]);
    if (!value) return wrong(text, "a loss model", kAllowed);
    values[i] = *value;
  }
  rules.gilbert_elliott = {true, values[0], values[1], values[2], values[3]};
  return {};
}

Result<void> set_bursts(LossRules& rules, const std::string& text) {
  constexpr const char* kAllowed =
      "every=TIME,length=TIME[-TIME],loss=PROBABILITY[-PROBABILITY][,jitter=TIME], as every=200ms,length=20ms,loss=75% "
      "or every=400ms,length=5ms-50ms,loss=60%-90%,jitter=200ms; none";
  if (text == "none") {
    rules.bursts = {};
    return {};
  }
  Bursts bursts;
  for (const std::string& part : split(text, ',')) {
    const std::size_t at = part.find('=');
    const std::string key = part.substr(0, at);
    const std::string value = at == std::string::npos ? "" : part.substr(at + 1);
    Result<void> done = fail(ErrorCode::kInvalidArgument, "");
    if (key == "loss") done = set_range(value, parse_probability, bursts.loss, bursts.highest_loss);
    if (key == "length") done = set_range(value, parse_duration_ns, bursts.length_ns, bursts.longest_ns);
    if (key == "every") done = set_one(value, parse_duration_ns, bursts.every_ns);
    if (key == "jitter") done = set_one(value, parse_duration_ns, bursts.jitter_ns);
    if (!done) return wrong(text, "a rule for bursts", kAllowed);
  }
  if (bursts.every_ns == 0 || bursts.length_ns == 0 || bursts.loss == 0) {
    return wrong(text, "a rule for bursts", kAllowed);
  }
  rules.bursts = bursts;
  return {};
}

Result<void> set_dead(LossRules& rules, const std::string& text) {
  if (text != "on" && text != "off") return wrong(text, "a state of a link", "on (everything is lost), off");
  rules.dead = text == "on";
  return {};
}

Result<void> set_marking(PortRules& rules, const std::string& text) {
  constexpr const char* kAllowed =
      "[CLASSES=]KMIN:KMAX:PMAX, as 65000:65000:1 for all classes or 3=30k:90k:10% for class 3; none";
  const auto said = split_classes(text);
  if (!said) return tl::unexpected(said.error());
  ClassRules wanted;
  if (said->second != "none") {
    const auto parts = split(said->second, ':');
    if (parts.size() != 3) return wrong(text, "a rule for marking", kAllowed);
    const auto least = parse_size(parts[0]);
    const auto most = parse_size(parts[1]);
    const auto probability = parse_probability(parts[2]);
    if (!least || !most || !probability || *probability == 0) return wrong(text, "a rule for marking", kAllowed);
    wanted.mark_min_bytes = *least;
    wanted.mark_max_bytes = *most;
    wanted.mark_probability = *probability;
  }
  for_each_class(rules, said->first, [&](ClassRules& one) {
    one.mark_min_bytes = wanted.mark_min_bytes;
    one.mark_max_bytes = wanted.mark_max_bytes;
    one.mark_probability = wanted.mark_probability;
  });
  return {};
}

Result<void> set_drop_above(PortRules& rules, const std::string& text) {
  constexpr const char* kAllowed = "CLASSES=BYTES, as 1=20k or 1,2=20k; none, 1=none";
  const auto said = split_classes(text);
  if (!said) return tl::unexpected(said.error());
  std::uint64_t above = kNeverDrop;
  if (said->second != "none") {
    const auto size = parse_size(said->second);
    // Without classes it would be a second, smaller buffer: --buffer is that.
    if (!size || text.find('=') == std::string::npos) return wrong(text, "a rule for dropping a class", kAllowed);
    above = *size;
  }
  for_each_class(rules, said->first, [&](ClassRules& one) { one.drop_above_bytes = above; });
  return {};
}

Result<void> set_trim(PortRules& rules, const std::string& text) {
  const auto classes = text == "none" ? ClassSet() : parse_classes(text);
  if (!classes) return tl::unexpected(classes.error());
  for (std::size_t i = 0; i < rules.classes.size(); ++i) rules.classes[i].trim = classes->test(i);
  return {};
}

bool RuleTexts::any() const {
  return loss || loss_model || bursts || dead || trim || seed || !marking.empty() || !drop_above.empty();
}

Result<void> apply(const RuleTexts& texts, PortRules& rules) {
  const std::string& direction = texts.direction;
  const bool out = direction == "to" || direction == "out" || direction == "both";
  const bool in = direction == "from" || direction == "in" || direction == "both";
  if (!out && !in) return named("direction", wrong(direction, "a direction", "to, out, from, in, both"));
  if (out) {
    if (const auto done = apply_losses(texts, rules.to_host); !done) return done;
  }
  if (in) {
    if (const auto done = apply_losses(texts, rules.from_host); !done) return done;
  }
  for (const std::string& text : texts.marking) {
    if (const auto done = named("ecn", set_marking(rules, text)); !done) return done;
  }
  for (const std::string& text : texts.drop_above) {
    if (const auto done = named("drop-above", set_drop_above(rules, text)); !done) return done;
  }
  if (texts.trim) {
    if (const auto done = named("trim", set_trim(rules, *texts.trim)); !done) return done;
  }
  if (texts.seed) rules.seed = *texts.seed;
  return {};
}

}  // namespace clustar::bench::fabric
