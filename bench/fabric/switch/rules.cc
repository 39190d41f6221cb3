#include "bench/fabric/switch/rules.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace clustar::bench::fabric {
namespace {

using nlohmann::json;

constexpr double kParts = 4294967296.0;  // 2^32, the switch's unit

tl::unexpected<Error> wrong(const std::string& message) { return fail(ErrorCode::kInvalidArgument, message); }

// Rounds to the switch's unit; what is not 0 stays above it.
Result<void> round_probability(double& value, const char* what) {
  if (!(value >= 0 && value <= 1)) {
    return wrong(fmt::format("{}: a probability of {}; allowed: 0 to 1, or 0% to 100%", what, value));
  }
  const double parts = std::round(value * kParts);
  value = (value > 0 && parts == 0 ? 1 : parts) / kParts;
  return {};
}

Result<void> check_class(ClassRules& rules, const PortLine& line, int index) {
  const std::string name = fmt::format("class {}", index);
  if (const auto ok = round_probability(rules.mark_probability, "marking"); !ok) return ok;
  if (rules.mark_probability == 0) rules.mark_min_bytes = rules.mark_max_bytes = 0;
  const bool queued = rules.mark_probability > 0 || rules.drop_above_bytes != kNeverDrop || rules.trim;
  if (queued && line.rate_bps == 0) {
    return wrong(name + ": marking, drop-above and trimming need a rate: without one nothing waits at a port");
  }
  if (rules.mark_min_bytes > rules.mark_max_bytes || rules.mark_max_bytes > line.buffer_bytes) {
    return wrong(fmt::format("{}: marks from {} to {} bytes; allowed: 0 <= Kmin <= Kmax <= the buffer, {} bytes", name,
                             rules.mark_min_bytes, rules.mark_max_bytes, line.buffer_bytes));
  }
  if (rules.mark_probability > 0 && rules.mark_probability < 1 && rules.mark_min_bytes == rules.mark_max_bytes) {
    return wrong(
        fmt::format("{}: Kmin = Kmax is a step, which marks all above it; allowed: Pmax = 1, or a larger Kmax", name));
  }
  if (rules.drop_above_bytes != kNeverDrop && rules.drop_above_bytes > line.buffer_bytes) {
    return wrong(fmt::format("{}: drop-above {} bytes; allowed: 0 to the buffer, {} bytes", name,
                             rules.drop_above_bytes, line.buffer_bytes));
  }
  return {};
}

Result<void> check_gilbert_elliott(GilbertElliott& rules) {
  if (!rules.on) {
    rules = {};
    return {};
  }
  for (double* value : {&rules.to_bad, &rules.to_good, &rules.loss_good, &rules.loss_bad}) {
    if (const auto ok = round_probability(*value, "loss model"); !ok) return ok;
  }
  if (rules.to_bad == 0) return wrong("loss model: it never becomes bad; allowed: above 0% for the first probability");
  return {};
}

Result<void> check_bursts(Bursts& rules) {
  for (double* value : {&rules.loss, &rules.highest_loss}) {
    if (const auto ok = round_probability(*value, "bursts"); !ok) return ok;
  }
  if (rules.every_ns == 0) {
    rules = {};
    return {};
  }
  if (rules.every_ns < kMinBurstPeriodNs || rules.every_ns > kMaxBurstPeriodNs) {
    return wrong(fmt::format("bursts every {} ns; allowed: 1ms to 3600s", rules.every_ns));
  }
  if (rules.length_ns == 0 || rules.length_ns > rules.every_ns || rules.loss == 0) {
    return wrong("bursts: allowed: a length above 0 and up to the time from one to the next, and a loss above 0%");
  }
  if (rules.longest_ns == rules.length_ns) rules.longest_ns = 0;
  if (rules.highest_loss == rules.loss) rules.highest_loss = 0;
  const std::uint64_t longest = rules.longest_ns == 0 ? rules.length_ns : rules.longest_ns;
  if (longest < rules.length_ns || (rules.highest_loss > 0 && rules.highest_loss < rules.loss)) {
    return wrong("bursts: allowed: ranges from the least to the most, as length=5ms-50ms,loss=60%-90%");
  }
  if (longest > rules.every_ns || rules.jitter_ns > rules.every_ns - longest) {
    return wrong(
        fmt::format("bursts of up to {} ns that begin up to {} ns late; allowed: both together up to the time "
                    "from one to the next, {} ns",
                    longest, rules.jitter_ns, rules.every_ns));
  }
  return {};
}

Result<void> check_loss(LossRules& rules) {
  if (const auto ok = round_probability(rules.random, "loss"); !ok) return ok;
  if (const auto ok = check_gilbert_elliott(rules.gilbert_elliott); !ok) return ok;
  return check_bursts(rules.bursts);
}

std::string percent(double value) { return fmt::format("{:.6g}%", value * 100); }

std::string describe(const Bursts& bursts) {
  const auto ms = [](std::uint64_t ns) { return fmt::format("{:.6g}", static_cast<double>(ns) / 1e6); };
  return fmt::format("bursts of {}{} ms every {} ms{} with {}{} loss", ms(bursts.length_ns),
                     bursts.longest_ns > 0 ? " to " + ms(bursts.longest_ns) : "", ms(bursts.every_ns),
                     bursts.jitter_ns > 0 ? fmt::format(" and up to {} ms later", ms(bursts.jitter_ns)) : "",
                     percent(bursts.loss), bursts.highest_loss > 0 ? " to " + percent(bursts.highest_loss) : "");
}

void describe_loss(const LossRules& rules, const char* direction, std::vector<std::string>& parts) {
  if (rules.dead) parts.push_back(fmt::format("dead{}", direction));
  if (rules.random > 0) parts.push_back(fmt::format("loss {}{}", percent(rules.random), direction));
  if (const auto& ge = rules.gilbert_elliott; ge.on) {
    parts.push_back(fmt::format("Gilbert-Elliott {},{},{},{} (mean {}){}", percent(ge.to_bad), percent(ge.to_good),
                                percent(ge.loss_good), percent(ge.loss_bad), percent(ge.mean_loss()), direction));
  }
  if (rules.bursts.every_ns > 0) parts.push_back(describe(rules.bursts) + direction);
}

std::string describe_marking(const ClassRules& rules) {
  if (rules.mark_probability == 0) return "";
  if (rules.mark_min_bytes == rules.mark_max_bytes) return fmt::format("marked above {} B", rules.mark_min_bytes);
  return fmt::format("marked from {} to {} B up to {}", rules.mark_min_bytes, rules.mark_max_bytes,
                     percent(rules.mark_probability));
}

std::string describe_drop_above(const ClassRules& rules) {
  return rules.drop_above_bytes == kNeverDrop ? "" : fmt::format("dropped above {} B", rules.drop_above_bytes);
}

std::string describe_trimming(const ClassRules& rules) { return rules.trim ? "trimmed" : ""; }

// Neighbouring classes of which the same is to be said share a part.
void describe_classes(const PortRules& rules, std::string (*what)(const ClassRules&), std::vector<std::string>& parts) {
  for (std::size_t first = 0, last = 0; first < rules.classes.size(); first = ++last) {
    const std::string said = what(rules.classes[first]);
    while (last + 1 < rules.classes.size() && what(rules.classes[last + 1]) == said) ++last;
    if (said.empty()) continue;
    const bool all = first == 0 && last + 1 == rules.classes.size();
    parts.push_back(all             ? fmt::format("all classes {}", said)
                    : first == last ? fmt::format("class {} {}", first, said)
                                    : fmt::format("classes {}-{} {}", first, last, said));
  }
}

json loss_json(const LossRules& rules) {
  const GilbertElliott& ge = rules.gilbert_elliott;
  json result{{"random", rules.random}, {"dead", rules.dead}, {"gilbert_elliott", nullptr}, {"bursts", nullptr}};
  if (ge.on) {
    result["gilbert_elliott"] = {
        {"to_bad", ge.to_bad}, {"to_good", ge.to_good}, {"loss_good", ge.loss_good}, {"loss_bad", ge.loss_bad}};
  }
  if (rules.bursts.every_ns > 0) {
    result["bursts"] = {{"every_ns", rules.bursts.every_ns},
                        {"length_ns", rules.bursts.length_ns},
                        {"loss", rules.bursts.loss},
                        {"longest_ns", rules.bursts.longest_ns},
                        {"highest_loss", rules.bursts.highest_loss},
                        {"jitter_ns", rules.bursts.jitter_ns}};
  }
  return result;
}

LossRules loss_from(const json& from) {
  LossRules rules;
  rules.random = from.value("random", 0.0);
  rules.dead = from.value("dead", false);
  if (const json ge = from.value("gilbert_elliott", json()); ge.is_object()) {
    rules.gilbert_elliott = {true, ge.at("to_bad"), ge.at("to_good"), ge.at("loss_good"), ge.at("loss_bad")};
  }
  if (const json bursts = from.value("bursts", json()); bursts.is_object()) {
    rules.bursts = {bursts.at("every_ns"),
                    bursts.at("length_ns"),
                    bursts.at("loss"),
                    bursts.value("longest_ns", std::uint64_t{0}),
                    bursts.value("highest_loss", 0.0),
                    bursts.value("jitter_ns", std::uint64_t{0})};
  }
  return rules;
}

ClassRules class_from(const json& from) {
  ClassRules rules;
  rules.mark_min_bytes = from.value("mark_min_bytes", std::uint64_t{0});
  rules.mark_max_bytes = from.value("mark_max_bytes", std::uint64_t{0});
  rules.mark_probability = from.value("mark_probability", 0.0);
  const json drop = from.value("drop_above_bytes", json());
  if (!drop.is_null()) rules.drop_above_bytes = drop.get<std::uint64_t>();
  rules.trim = from.value("trim", false);
  return rules;
}

}  // namespace

double GilbertElliott::mean_loss() const {
  const double bad = to_bad + to_good > 0 ? to_bad / (to_bad + to_good) : 0;
  return on ? bad * loss_bad + (1 - bad) * loss_good : 0;
}

const PortRules& SwitchRules::of(const std::string& port) const {
  const auto found = ports.find(port);
  return found == ports.end() ? all : found->second;
}

Result<PortRules> checked(PortRules rules, const PortLine& line) {
  for (int i = 0; i < kClasses; ++i) {
    if (const auto ok = check_class(rules.classes.at(static_cast<std::size_t>(i)), line, i); !ok) {
      return tl::unexpected(ok.error());
    }
  }
  for (LossRules* loss : {&rules.to_host, &rules.from_host}) {
    if (const auto ok = check_loss(*loss); !ok) return tl::unexpected(ok.error());
  }
  // A seed decides nothing where nothing is drawn.
  PortRules unseeded = rules;
  unseeded.seed = PortRules().seed;
  return unseeded == PortRules() ? unseeded : rules;
}

std::string describe(const PortRules& rules) {
  std::vector<std::string> parts;
  describe_loss(rules.to_host, "", parts);
  describe_loss(rules.from_host, " inwards", parts);
  for (const auto what : {describe_marking, describe_drop_above, describe_trimming}) {
    describe_classes(rules, what, parts);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

json to_json(const PortRules& rules) {
  json classes = json::array();
  for (const ClassRules& one : rules.classes) {
    classes.push_back({{"mark_min_bytes", one.mark_min_bytes},
                       {"mark_max_bytes", one.mark_max_bytes},
                       {"mark_probability", one.mark_probability},
                       {"drop_above_bytes", nullptr},
                       {"trim", one.trim}});
    if (one.drop_above_bytes != kNeverDrop) classes.back()["drop_above_bytes"] = one.drop_above_bytes;
  }
  return {{"classes", classes},
          {"to_host", loss_json(rules.to_host)},
          {"from_host", loss_json(rules.from_host)},
          {"seed", rules.seed}};
}

Result<PortRules> rules_from_json(const json& from) {
  try {
    PortRules rules;
    const json& classes = from.at("classes");
    if (!classes.is_array() || classes.size() != rules.classes.size()) return wrong("rules: allowed: 8 classes");
    for (std::size_t i = 0; i < rules.classes.size(); ++i) rules.classes[i] = class_from(classes[i]);
    rules.to_host = loss_from(from.at("to_host"));
    rules.from_host = loss_from(from.at("from_host"));
    rules.seed = from.value("seed", std::uint64_t{1});
    return rules;
  } catch (const json::exception& error) {
    return wrong(fmt::format("these are no rules of a port: {}", error.what()));
  }
}

}  // namespace clustar::bench::fabric
