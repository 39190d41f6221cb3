// A comparison's outcome as JSON, which is all that the table and the report are made from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/verdict.h"
#include "bench/fabric/probe.h"

namespace clustar::bench::ab {

// What makes a comparison weaker than it looks is collected in "warnings".
// One entry of `results`: {model, baseline, candidate, images_per_second_a, images_per_second_b, ratio, ratio_low,
// ratio_high, time_to_accuracy_ratio (baseline's seconds / candidate's; null without a target that both reached),
// ceiling_ratio, verdict, arms, runs, ...}.
// Of `outcomes` with fewer rounds than planned: these, with a warning and "planned_rounds".
nlohmann::json to_json(const Plan& plan, const Outcomes& outcomes, const Verdict& verdict,
                       const std::optional<fabric::PacketProof>& proof);

// Where a cluster's ranks were, as {kind, text, launcher, launcher_version, launcher_arguments, hosts}; `hosts` is what
// cluster::train() gave to a run's results.
nlohmann::json cluster_json(const cluster::Spec& spec, const nlohmann::json& hosts);
// That ranks of such a place had no network between them, or "".
std::string one_place_warning(const nlohmann::json& place);

// "losses are equal ...": whether both arms trained the same.
std::string equality_text(const nlohmann::json& result);

// The table for people; `result` is what to_json() made.
std::string table(const nlohmann::json& result);

// The whole report as one HTML page that refers to nothing outside itself. `document` is the envelope around
// [result] (see bench/report).
std::string html(const nlohmann::json& document);

// For every kind of comparison: {name, plugin (or what sums in its place), options, settings, congestion_control,
// congestion_control_explicit}. `kernels`: the kernel's default where the ranks run.
nlohmann::json arm_facts(const Arm& arm, const std::string& kernels);
// {median, min, max}; null for no values.
nlohmann::json spread_json(const std::vector<double>& values);

}  // namespace clustar::bench::ab
