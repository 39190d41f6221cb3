// Every row's runs: the baseline of 2018, what could at most be, and our arms, in turns.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/reproduction/rows.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::reproduction {

struct TablePlan {
  std::vector<Row> rows;
  Arm baseline;           // the parameter server of 2018
  std::vector<Arm> arms;  // ours
  int ranks = 8;
  std::uint64_t rate_bps = 0;
  std::string card;  // whose published figures computing is estimated from
  int batch = 32;    // of one rank
  int steps = 5;     // of one run, at least
  int rounds = kRoundsOfTable;
  int stall_timeout_s = 60;
  std::uint64_t seed = 1;  // of the first round; each adds one

  static constexpr int kRoundsOfTable = 5;
};

// kInvalidArgument: a row that the trainer's scales do not reach by this rate and card, or more steps than it takes
// examples for. Of what a probe then measures, conduct() says the same as the row's problem.
Result<void> check(const TablePlan& plan);

// Who runs when: 0 the baseline, 1 without communication, then the arms; rotated by one from round to round.
std::vector<std::size_t> order_of_round(std::size_t arms, int round);

// A comparison's plan for `clustar train` of one of our arms, or the first for the other roles.
Plan plan_of(const TablePlan& plan, const Row& row, const Scales& scales, std::size_t arm, int steps);

struct Hands {
  std::function<Result<nlohmann::json>(const Plan& plan, Role role, int round)>
      train;                                               // what the trainer reports, other_cpu_...
  std::function<int()> interrupted;                        // the signal, or 0
  std::function<void(const std::string& line)> say;        // may be empty
  std::function<void(const nlohmann::json& rows)> on_row;  // all rows so far; may be empty
};

// {model, published, wanted_ceiling, time_scale, byte_scale, probe_exposed_s, runs [{arm, round, images_per_second,
// exposed_comm_s, compute_s, steps, bytes_sent, replicas_identical, other_cpu_cores, other_cpu_disturbs}], problem
// (null: all runs were done)} of each row.
nlohmann::json conduct(const TablePlan& plan, const Hands& hands);

}  // namespace clustar::bench::ab::reproduction
