// What CLUSTAR's authors reported in 2018, and how large a training of ours is to be, so that the same is asked of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::ab::reproduction {

struct Row {
  std::string model;
  double published = 1;  // times as fast as the stack before, as reported
};

// LR 2.59, MLP 3.45, AlexNet 1.6, VGG-16 1.33, ResNet-50 1.03. Layers, batch, cards and network were not reported.
const std::vector<Row>& all_rows();
// Those of these models, in the order above; empty: all. kInvalidArgument names what there is.
Result<std::vector<Row>> choose_rows(const std::vector<std::string>& models);

// No transport gains more than communication costs. The network is set so that the training without communication is
// this much faster than published, which leaves room for the published figure and little more.
inline constexpr double kRoom = 1.25;
double wanted_ceiling(const Row& row);

// Of one step.
struct Load {
  double compute_s = 0;  // unscaled
  std::uint64_t gradient_bytes = 0;
  int ranks = 2;
  std::uint64_t rate_bps = 0;  // of a port, each way
};
struct Scales {
  double time = 1;
  double byte = 1;
};
// So that a step computes for about kComputeSeconds and one server, by whose port all gradients come and go one after
// the other, brings it to the wanted ceiling. Where that would take larger gradients than there are, a step is shorter.
inline constexpr double kComputeSeconds = 1;
Scales first_scales(const Row& row, const Load& load);
// For the same, by what the baseline's communication took of a step: compute follows it.
double time_scale(const Row& row, const Load& load, double exposed_s);

// Of the baseline's steps, how many make a run of kRunSeconds: short steps need more of them for a steady figure.
inline constexpr double kRunSeconds = 6;
int steps_of(const Row& row, double compute_s);

}  // namespace clustar::bench::ab::reproduction
