// What each layer of a model takes on some device: recorded by a run that computes, or estimated for a card.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/trainer/model.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct LayerTime {
  std::string name;         // of the graph's node
  double forward_s = 0;     // seconds, of the whole batch, as the three below
  double parameters_s = 0;  // gradients by the layer's parameters
  double inputs_s = 0;      // gradients by its inputs
};

struct LayerTimes {
  std::string model;
  std::size_t batch = 0;  // examples per step on one rank
  bool estimated = false;
  std::string device;
  std::vector<LayerTime> layers;  // of all of the graph's nodes but the first, its input, in their order

  double forward_s() const;
  double backward_s() const;
  // "recorded on ..." or "estimated for ..."
  std::string source() const;
};

inline constexpr std::size_t kMostLayers = 100'000;
inline constexpr double kLongestLayerSeconds = 3600;

// A JSON file: {what: "layer times", version: 1, model, batch, estimated, device, layers [{name, forward_s,
// parameters_s, inputs_s}]}.
std::string to_text(const LayerTimes& times);
// kInvalidArgument names what is missing or out of range, with what is allowed.
Result<LayerTimes> parse_layer_times(const std::string& text);
// The same of a file; errors name it.
Result<LayerTimes> load_layer_times(const std::string& path);
// Whether they are of this model: its name and, in order, its layers.
Result<void> check_fits(const LayerTimes& times, const Model& model);

}  // namespace clustar::bench::trainer
