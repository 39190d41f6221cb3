#include "bench/trainer/loss_meter.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "nccl_plugin/abi/types.h"

namespace clustar::bench::trainer {

LossMeter::LossMeter(const clustarApi_v1_t* api, const clustarApi_v2_t* marks)
    : api_(api), marks_(marks), before_(total()) {
  for (const clustarCollective_v1& collective : collectives()) earlier_.insert(collective.comm_id);
}

std::vector<clustarCollective_v1> LossMeter::collectives() const {
  constexpr std::size_t kKept = 4096;
  std::vector<clustarCollective_v1> out(kKept);
  for (clustarCollective_v1& collective : out) collective.size = sizeof collective;
  std::size_t count = 0;
  const bool told = api_ != nullptr && api_->listCollectives != nullptr &&
                    api_->listCollectives(out.data(), out.size(), &count) == CLUSTAR_OK;
  out.resize(told ? count : 0);
  return out;
}

LossCounts LossMeter::total() const {
  LossCounts counts;
  clustarTotals_v1 totals{};
  totals.size = sizeof totals;
  if (api_ == nullptr || api_->getTotals(&totals) != CLUSTAR_OK) return counts;
  counts.known = true;
  counts.delivered_bytes = totals.delivered_bytes;
  counts.missing_bytes = totals.missing_bytes;
  counts.eligible_bytes = totals.eligible_bytes;
  counts.sent_messages = totals.sent_messages;
  counts.identified_messages = totals.identified_messages;
  counts.tolerant_messages = totals.tolerant_messages;
  clustarImportance_v1 marked{};
  marked.size = sizeof marked;
  if (marks_ != nullptr && marks_->getImportance(&marked) == CLUSTAR_OK) {
    counts.marked_messages = marked.messages;
    counts.marked_bytes = marked.bytes;
    counts.important_bytes = marked.important_bytes;
  }
  for (std::size_t i = 0; i < counts.reasons.size(); ++i) {
    LossCounts::Reason& reason = counts.reasons[i];
    const char* name = nullptr;
    if (api_->getReason(static_cast<std::uint32_t>(i), &name, &reason.messages) != CLUSTAR_OK) break;
    if (name != nullptr) std::strncpy(reason.name, name, sizeof reason.name - 1);
  }
  return counts;
}

LossCounts LossMeter::read() const {
  LossCounts now = total();
  now.delivered_bytes -= before_.delivered_bytes;
  now.missing_bytes -= before_.missing_bytes;
  now.eligible_bytes -= before_.eligible_bytes;
  now.sent_messages -= before_.sent_messages;
  now.identified_messages -= before_.identified_messages;
  now.tolerant_messages -= before_.tolerant_messages;
  now.marked_messages -= before_.marked_messages;
  now.marked_bytes -= before_.marked_bytes;
  now.important_bytes -= before_.important_bytes;
  std::map<std::pair<std::uint64_t, std::uint64_t>, double> exchanges;  // by communicator and number
  for (const clustarCollective_v1& collective : collectives()) {
    if (earlier_.contains(collective.comm_id) || collective.total_bytes == 0) continue;
    const double charge = static_cast<double>(collective.contributions) / static_cast<double>(collective.total_bytes);
    if (collective.function == nccl_abi::kSend) {
      if (collective.ranks > 0) exchanges[{collective.comm_id, collective.number}] += charge / collective.ranks;
    } else {
      now.worst_charge = std::max(now.worst_charge, charge);
    }
  }
  for (const auto& [exchange, charge] : exchanges) now.worst_charge = std::max(now.worst_charge, charge);
  for (std::size_t i = 0; i < now.reasons.size(); ++i) now.reasons[i].messages -= before_.reasons[i].messages;
  return now;
}

}  // namespace clustar::bench::trainer
