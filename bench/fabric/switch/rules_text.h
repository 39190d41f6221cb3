// Rules as a command line says them. Each function changes what its text speaks of and nothing else, so that options
// add up; "none" takes a rule away. kInvalidArgument naming what is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/fabric/switch/rules.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

Result<double> parse_probability(const std::string& text);         // "1%", "0.01", "none" = 0
Result<std::uint64_t> parse_duration_ns(const std::string& text);  // "200ms", "5us", "1.5s"

Result<void> set_loss(LossRules& rules, const std::string& text);        // "1%"
Result<void> set_loss_model(LossRules& rules, const std::string& text);  // "ge:1%,25%,0,50%": to bad, to good, losses
Result<void> set_bursts(LossRules& rules, const std::string& text);      // "every=200ms,length=5ms-50ms,loss=75%"
Result<void> set_dead(LossRules& rules, const std::string& text);        // "on", "off"

// "[CLASSES=]KMIN:KMAX:PMAX"; CLASSES is a number, a list or a range (3, 1,2, 0-6); without it all eight.
Result<void> set_marking(PortRules& rules, const std::string& text);
Result<void> set_drop_above(PortRules& rules, const std::string& text);  // "CLASSES=BYTES", as "1=20k"; "1=none"
Result<void> set_trim(PortRules& rules, const std::string& text);  // CLASSES are trimmed, others not; "all", "none"

// The rules that a command line or a file speaks of; what is not there stays as it was.
struct RuleTexts {
  std::optional<std::string> loss, loss_model, bursts, dead;
  // Which packets those four speak of: "to" or "out" (leave by the port), "from" or "in" (come in there), "both".
  std::string direction = "to";
  std::vector<std::string> marking, drop_above;
  std::optional<std::string> trim;
  std::optional<std::uint64_t> seed;

  bool any() const;
};

// kInvalidArgument: "loss: ...", by the options' names.
Result<void> apply(const RuleTexts& texts, PortRules& rules);

}  // namespace clustar::bench::fabric
