// Losses in a run's report: the ledger's check, JSON keys and the lines of the table.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/trainer/config.h"
#include "bench/trainer/metrics.h"

namespace clustar::bench::trainer {

// Empty: on no rank is more missing than `bound_ppm` of what was eligible, nor of one collective more contributions
// than `bound_ppm` of its bytes. Otherwise who broke it and by what.
std::string ledger_breach(const std::vector<RankTotals>& ranks, std::uint32_t bound_ppm);

// delivered_bytes, missing_bytes, eligible_bytes, identified_messages, tolerant_messages, marked_messages,
// marked_bytes, important_bytes, worst_charge (contributions per byte of the collective that lost most),
// reliable_reasons{}: of one rank, or of all together. null where the plugin (of any rank) does not tell.
nlohmann::json loss_json(const LossCounts& counts);
nlohmann::json loss_json(const std::vector<RankTotals>& ranks);

// Name and text of the table's rows; none where nothing was sent.
std::vector<std::pair<std::string, std::string>> loss_rows(const nlohmann::json& results);

}  // namespace clustar::bench::trainer
