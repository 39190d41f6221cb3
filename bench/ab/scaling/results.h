// A comparison at several numbers of ranks as JSON, which is all that the table and the page are made from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/ab/scaling/conduct.h"
#include "bench/fabric/probe.h"

namespace clustar::bench::ab::scaling {

// {model, shape, gradient_bytes, replay (its label and scales, or null), batch_rule, ranks[], rounds, planned_rounds,
// ended_by, seconds, place, baseline, candidate, arms[2], points[], ratios[], warnings[], inherited_settings, config,
// runs[]}. A point: {ranks, arm, batch, learning_rate, images_per_second, efficiency, linear_images_per_second,
// compute_ms_per_step, exposed_comm_ms_per_step, steps, loss, accuracy}; the first two are {median, min, max}.
// Efficiency is images/s over ranks x images/s of one rank in the same round. A ratio: {ranks, ratio, low, high},
// candidate over baseline. At least one whole round.
nlohmann::json to_json(const ScalingPlan& plan, const ScalingOutcomes& outcomes,
                       const std::optional<fabric::PacketProof>& proof);

// The rows of `results` in the envelope: its points, each with model, baseline and candidate.
nlohmann::json rows(const nlohmann::json& outcome);

// The point of these ranks and this arm; null: there is none.
nlohmann::json find_point(const nlohmann::json& outcome, int ranks, const std::string& arm);

// Two sentences on what goes with the number of ranks.
std::string rule_text(const nlohmann::json& outcome);

// The table for people.
std::string table(const nlohmann::json& outcome);

// One HTML page. `document`: the envelope, with `scaling`, what to_json() made.
std::string page(const nlohmann::json& document);

}  // namespace clustar::bench::ab::scaling
