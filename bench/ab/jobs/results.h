// The outcome of several jobs under two arms as JSON, which is all that the table and the page are made from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/ab/jobs/conduct.h"

namespace clustar::bench::ab::jobs {

// {options, place, arms[2], jobs[], runs[], figures, warnings[], failed_runs, left_out[], ended_by, seconds}. `figures`
// has a row per arm, of the rounds in which no job of it failed: {arm, rounds, common_rounds, dropped, sum_relative,
// least_relative, jain, jobs[{job, per_second, step_s, relative, done_s, and of a queue completion_s, waited_s,
// makespan_s}]}, each value {median, min, max} over rounds or null; alone[{job, per_second, step_s, of a queue as
// above}]; and `b_over_a` {sum_relative, sum_per_second (null where units differ), least_relative, jobs[],
// completion[]} as {ratio, low, high} over the rounds that both arms have. Speeds in `runs` are those that the figures
// use: of `window_s`, or of whole runs where it is null. Iterations of a queue overlap, so its per_second is null
// everywhere.
nlohmann::json to_json(const JobsPlan& plan, const JobsOutcomes& outcomes);

// `results` of the envelope: a row per job {job, model, unit, baseline, candidate, per_second_a, per_second_b,
// relative_a, relative_b, ratio, ratio_low, ratio_high}; null where it was not measured. `outcome`: what to_json()
// made.
nlohmann::json rows(const nlohmann::json& outcome);

// A line for a run that has ended: by its own common window, and by the whole run, since which of them the figures use
// depends on the round's other arm, too, which may be yet to come.
std::string run_line(const JobsPlan& plan, const Run& run, int done, int total);
// The table for people.
std::string table(const nlohmann::json& outcome);
// One HTML page that refers to nothing outside itself. `document`: the envelope with "jobs", what to_json() made.
std::string page(const nlohmann::json& document);

}  // namespace clustar::bench::ab::jobs
