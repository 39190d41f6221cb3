#include "bench/trainer/loss_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;

constexpr double kMillion = 1e6;

LossCounts sum_of(const std::vector<RankTotals>& ranks) {
  LossCounts sum;
  sum.known = std::all_of(ranks.begin(), ranks.end(), [](const RankTotals& rank) { return rank.loss.known; });
  for (const RankTotals& rank : ranks) {
    sum.delivered_bytes += rank.loss.delivered_bytes;
    sum.missing_bytes += rank.loss.missing_bytes;
    sum.eligible_bytes += rank.loss.eligible_bytes;
    sum.sent_messages += rank.loss.sent_messages;
    sum.identified_messages += rank.loss.identified_messages;
    sum.tolerant_messages += rank.loss.tolerant_messages;
    sum.marked_messages += rank.loss.marked_messages;
    sum.marked_bytes += rank.loss.marked_bytes;
    sum.important_bytes += rank.loss.important_bytes;
    sum.worst_charge = std::max(sum.worst_charge, rank.loss.worst_charge);
    // All ranks run the same plugin, so a reason has the same place on each.
    for (std::size_t i = 0; i < sum.reasons.size(); ++i) {
      if (rank.loss.reasons[i].name[0] == '\0') continue;
      const std::uint64_t before = sum.reasons[i].messages;
      sum.reasons[i] = rank.loss.reasons[i];
      sum.reasons[i].messages += before;
    }
  }
  return sum;
}

json reasons_json(const LossCounts& counts) {
  json reasons = json::object();
  for (const LossCounts::Reason& reason : counts.reasons) {
    if (reason.name[0] != '\0' && reason.messages > 0) reasons[reason.name] = reason.messages;
  }
  return reasons;
}

}  // namespace

std::string ledger_breach(const std::vector<RankTotals>& ranks, std::uint32_t bound_ppm) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const LossCounts& loss = ranks[r].loss;
    const double allowed = static_cast<double>(loss.eligible_bytes) * bound_ppm / kMillion;
    if (loss.known && loss.worst_charge > bound_ppm / kMillion) {
      return fmt::format(
          "the loss ledger was broken: on rank {} one collective lost {:.6f} contributions for each byte of its input, "
          "where at most {:.6f} may be",
          r, loss.worst_charge, bound_ppm / kMillion);
    }
    if (!loss.known || static_cast<double>(loss.missing_bytes) <= allowed) continue;
    return fmt::format(
        "the loss ledger was broken: on rank {} {} bytes are missing of {} that were eligible, where at most {:.0f} "
        "({} %) may be",
        r, loss.missing_bytes, loss.eligible_bytes, allowed, bound_ppm / 1e4);
  }
  return {};
}

json loss_json(const LossCounts& counts) {
  const auto number = [&](std::uint64_t value) { return counts.known ? json(value) : json(nullptr); };
  return {{"delivered_bytes", number(counts.delivered_bytes)},
          {"missing_bytes", number(counts.missing_bytes)},
          {"eligible_bytes", number(counts.eligible_bytes)},
          {"identified_messages", number(counts.identified_messages)},
          {"tolerant_messages", number(counts.tolerant_messages)},
          {"marked_messages", number(counts.marked_messages)},
          {"marked_bytes", number(counts.marked_bytes)},
          {"important_bytes", number(counts.important_bytes)},
          {"worst_charge", counts.known ? json(counts.worst_charge) : json(nullptr)},
          {"reliable_reasons", counts.known ? reasons_json(counts) : json(nullptr)}};
}

json loss_json(const std::vector<RankTotals>& ranks) { return loss_json(sum_of(ranks)); }

std::vector<std::pair<std::string, std::string>> loss_rows(const json& results) {
  if (results["transport"].is_null()) return {};
  const std::string collective = results.value("collective", "");
  if (collective == "paraexpress" || collective == "ps") return {};  // which allow no loss
  if (results["missing_bytes"].is_null()) {
    return {{"missing, all ranks", "n/a (the plugin exports no clustarApi_v1)"}};
  }
  const auto missing = results["missing_bytes"].get<std::uint64_t>();
  const auto eligible = results["eligible_bytes"].get<std::uint64_t>();
  const double share = eligible > 0 ? 100.0 * static_cast<double>(missing) / static_cast<double>(eligible) : 0;
  std::vector<std::pair<std::string, std::string>> rows{
      {"missing, all ranks", fmt::format("{} bytes of {} eligible ({:.3f} %), {} delivered", missing, eligible, share,
                                         results["delivered_bytes"].get<std::uint64_t>())},
      {"messages, all ranks",
       fmt::format("{} identified, {} might lose", results["identified_messages"].get<std::uint64_t>(),
                   results["tolerant_messages"].get<std::uint64_t>())}};
  if (const auto marked = results["marked_bytes"].get<std::uint64_t>(); marked > 0) {
    const auto important = results["important_bytes"].get<std::uint64_t>();
    rows.emplace_back("marked by the trainer",
                      fmt::format("{} messages, {:.1f} % of their bytes important and not to be lost",
                                  results["marked_messages"].get<std::uint64_t>(),
                                  100.0 * static_cast<double>(important) / static_cast<double>(marked)));
  }
  std::string reasons;
  for (const auto& [name, messages] : results["reliable_reasons"].items()) {
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", name, messages.get<std::uint64_t>());
  }
  if (!reasons.empty()) rows.emplace_back("reliable because", reasons);
  return rows;
}

}  // namespace clustar::bench::trainer
