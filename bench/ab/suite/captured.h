// How much of what trouble costs TCP an arm takes back. JSON in, JSON out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::ab::suite {

// (T_tcp - T_arm) / (T_tcp - T_clean): seconds of a step of the better TCP with rto_min 5 ms in the scenario, of the
// arm there, and of the better such TCP on clean lines; the same all-reduce throughout (beside ParaExpress the
// ring). 1: the arm is as fast in
// trouble as TCP without any. Above 1 it is faster than that.
//
// [{scenario, arm, tcp, clean, gain (median of the rounds), low, high (the least and the largest of a round),
// interval_low, interval_high (95 %, of the median; null below five rounds), rounds, limit, met (whether the interval's
// low end reaches the limit), verdict (met in words)}], for every arm of MLT in every scenario but "clean", where TCP
// was slower than on clean lines. limit, met and verdict are null where no bar is set; met is null, and verdict says
// why, below five rounds and where rounds are missing. Empty without a clean scenario.
nlohmann::json captured_gains(const nlohmann::json& training);

// A line for each; empty without any.
std::string captured_text(const nlohmann::json& gains);

}  // namespace clustar::bench::ab::suite
