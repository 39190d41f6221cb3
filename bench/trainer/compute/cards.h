// GPUs by what their makers publish of them, for estimates until a real one was measured.
#pragma once

#include <string>
#include <vector>

#include "bench/trainer/compute/layer_times.h"
#include "bench/trainer/model.h"

namespace clustar::bench::trainer {

// Sources: NVIDIA's data sheets of Tesla P100 (2016), V100 (2020), A100 (2021), H100 (2023) and H200 (2024), dense.
struct Card {
  const char* name;
  const char* published;    // for people
  double flops;             // per second, of float32 matrices as PyTorch multiplies them: TF32 where the card has it
  double bytes_per_second;  // of its memory
};
const Card* find_card(const std::string& name);  // null: there is no such card
std::vector<std::string> card_names();

// No layer reaches a card's peak. Half is our assumption, and gives ResNet-50 on a V100 in float32 about 0.75 of the 360
// images per second that NVIDIA's DeepLearningExamples report.
inline constexpr double kReached = 0.5;

// Of `batch` examples: for each layer the longer of its multiplications at kReached of the card's peak and its bytes
// (inputs, outputs, parameters, float32) at the memory's rate. Gradients by parameters and by inputs multiply as often
// as the layer itself.
LayerTimes estimate(const Model& model, const Card& card, std::size_t batch);

}  // namespace clustar::bench::trainer
