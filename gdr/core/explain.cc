#include "gdr/core/explain.h"

#include <fmt/format.h>

#include <algorithm>

namespace clustar::gdr {

std::vector<Explanation> explanations(const Decision& decision) {
  std::vector<Explanation> all;
  for (const Reason& reason : decision.reasons) {
    const bool matters = (reason.direction != Direction::kSend && reason.tier < decision.receive) ||
                         (reason.direction != Direction::kReceive && reason.tier < decision.send);
    if (!matters) continue;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Explanation& known) {
      return known.direction == reason.direction && known.why == reason.why && known.fix == reason.fix;
    });
    if (same == all.end()) {
      all.push_back({{reason.tier}, reason.direction, reason.certain, reason.why, reason.fix});
    } else if (same->tiers.back() != reason.tier) {
      same->tiers.push_back(reason.tier);
    }
  }
  return all;
}

std::string headline(const Explanation& explanation) {
  std::string tiers;
  for (const Tier tier : explanation.tiers) tiers += fmt::format("{}{}", tiers.empty() ? "" : ", ", to_string(tier));
  const char* const direction = explanation.direction == Direction::kSend      ? " for sends"
                                : explanation.direction == Direction::kReceive ? " for receives"
                                                                               : "";
  return fmt::format("{} {}{}: {}", explanation.certain ? "no" : "perhaps no", tiers, direction, explanation.why);
}

std::string explain(const Decision& decision) {
  const auto tier = [](Tier taken, bool certain) { return fmt::format("{}{}", to_string(taken), certain ? "" : "?"); };
  std::string text = fmt::format("GPU {}, {}: distance {} ({})\n", decision.gpu, decision.nic,
                                 to_string(decision.distance), meaning(decision.distance));
  text += fmt::format("  receive: {}; flush: {} ({})\n", tier(decision.receive, decision.receive_certain),
                      to_string(decision.flush), decision.flush_why);
  text += fmt::format("  send: {}\n", tier(decision.send, decision.send_certain));
  if (decision.pcie_mapping) text += "  dma-bufs are exported for PCIe, not for C2C\n";
  for (const Explanation& explanation : explanations(decision)) {
    text += fmt::format("  {}\n    fix: {}\n", headline(explanation), explanation.fix);
  }
  for (const Note& note : decision.notes) text += fmt::format("  note: {}\n    fix: {}\n", note.why, note.fix);
  return text;
}

}  // namespace clustar::gdr
