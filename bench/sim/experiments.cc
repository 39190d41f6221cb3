#include "bench/sim/experiments.h"

namespace clustar::bench::sim {
namespace {

constexpr Experiment kExperiments[] = {
    {"loss", "goodput of reliable 1 MiB messages under random loss", run_loss},
    {"start-up", "the first message of a connection on an idle path", run_start_up},
    {"incast", "15 hosts send 128 KiB each to one, 100 kB of buffer", run_incast},
    {"bad-path", "1 MiB messages with one bad path of eight", run_bad_path},
    {"bad-spine", "the lossy suite's bad-path: 200 Mbit/s, four spines, one loses 5 %", run_bad_spine},
    {"micro-bursts", "message times under short bursts of heavy loss, with and without tolerance", run_micro_bursts},
    {"tolerance", "1 MiB messages under random loss and bursts, p = 0 against p = 1 %", run_tolerance},
    {"mice", "1 KiB messages beside eight streams of 1 MiB messages", run_mice},
    {"fairness", "two flows on one link: MLT and MLT, MLT and DCTCP", run_fairness},
    {"take-turns", "two periodic jobs on one uplink, with windows that grow by the iteration's progress",
     run_take_turns},
    {"scale", "CPU time per packet of an all-to-all over 64, 256 and 1,024 hosts", run_scale},
    {"long-pipe", "one stream at 10 Gbit/s over 1 to 100 ms, with loss", run_long_pipe},
    {"paths", "all-reduces from the rack to another continent, with loss and tolerance", run_paths},
    {"plans", "ParaExpress's plans on two leaves with narrow uplinks, and what its planner takes", run_plans},
    {"plans-flow", "the same to 4,096 ranks, flow by flow", run_plans_flow},
};

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

}  // namespace clustar::bench::sim
