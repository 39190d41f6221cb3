// What the rows' runs are worth: JSON in, and JSON, a table and a page out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/ab/reproduction/conduct.h"
#include "bench/fabric/probe.h"
#include "bench/fabric/spec.h"

namespace clustar::bench::ab::reproduction {

inline constexpr const char* kLabel =
    "A reproduction on an emulated network: computing is replayed, by estimates, and the stack of 2018 is our own "
    "parameter server.";
// How `candidate` is chosen.
inline constexpr const char* kChoice =
    "B is, of our arms, the one with the best median of these same rounds, so that its figure flatters a little.";

// Of conduct()'s rows, the contract's keys of `ab` for each: {model, baseline, candidate (of our arms, the one with the
// best median), images_per_second_a, images_per_second_b, ratio, ratio_low, ratio_high, time_to_accuracy_ratio (null),
// ceiling_ratio, published, rounds (of the candidate), met (whether the interval's low end reaches what was reported;
// null: not all runs were done, or fewer than five rounds), verdict (that in words), arms [{name, images_per_second,
// rounds, ratio, ratio_low, ratio_high}], ...the row}.
nlohmann::json judge(const nlohmann::json& rows, const std::string& baseline);

// What a table was measured on.
struct Surroundings {
  fabric::FabricSpec fabric;
  std::optional<fabric::PacketProof> proof{};
  std::string kernel_congestion_control;
};
// {place {kind, text, ranks, rate_bps, mtu, buffer_bytes, per_packet (null: not proved)}, planned_rounds, card, batch
// (of one rank), seed, inherited_settings, warnings}. `results`: what judge() made.
nlohmann::json setting(const TablePlan& plan, const Surroundings& around, const nlohmann::json& results);

// For people. `document`: bench/report's envelope around judge()'s, with what setting() says.
std::string table(const nlohmann::json& document);
// One HTML page of the same.
std::string page(const nlohmann::json& document);

}  // namespace clustar::bench::ab::reproduction
