#include "bench/trainer/compute/layer_times.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/report/report.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;

constexpr const char* kWhat = "layer times";
constexpr int kVersion = 1;
constexpr std::size_t kMostBatch = 1u << 20;
constexpr int kDeepest = 8;  // of values in values; copies of them call themselves so often

tl::unexpected<Error> wrong(const std::string& what) { return fail(ErrorCode::kInvalidArgument, what); }

Result<double> seconds_at(const json& layer, const char* key, std::size_t number) {
  const auto found = layer.find(key);
  if (found != layer.end() && found->is_number()) {
    const double seconds = found->get<double>();
    if (std::isfinite(seconds) && seconds >= 0 && seconds <= kLongestLayerSeconds) return seconds;
  }
  return wrong(
      fmt::format("layer {}: '{}' has to be a number of seconds from 0 to {}", number, key, kLongestLayerSeconds));
}

Result<LayerTime> layer_of(const json& layer, std::size_t number) {
  if (!layer.is_object() || !layer.contains("name") || !layer["name"].is_string()) {
    return wrong(fmt::format("layer {} has no name", number));
  }
  LayerTime time{.name = layer["name"]};
  for (const auto& [key, member] : {std::pair{"forward_s", &LayerTime::forward_s},
                                    {"parameters_s", &LayerTime::parameters_s},
                                    {"inputs_s", &LayerTime::inputs_s}}) {
    const auto seconds = seconds_at(layer, key, number);
    if (!seconds) return tl::unexpected(seconds.error());
    time.*member = *seconds;
  }
  return time;
}

}  // namespace

double LayerTimes::forward_s() const {
  double sum = 0;
  for (const LayerTime& layer : layers) sum += layer.forward_s;
  return sum;
}

double LayerTimes::backward_s() const {
  double sum = 0;
  for (const LayerTime& layer : layers) sum += layer.parameters_s + layer.inputs_s;
  return sum;
}

std::string LayerTimes::source() const { return (estimated ? "estimated for " : "recorded on ") + device; }

std::string to_text(const LayerTimes& times) {
  json layers = json::array();
  for (const LayerTime& layer : times.layers) {
    layers.push_back({{"name", layer.name},
                      {"forward_s", layer.forward_s},
                      {"parameters_s", layer.parameters_s},
                      {"inputs_s", layer.inputs_s}});
  }
  const json document{{"what", kWhat},        {"version", kVersion},          {"model", times.model},
                      {"batch", times.batch}, {"estimated", times.estimated}, {"device", times.device},
                      {"layers", layers}};
  return document.dump(1) + "\n";
}

Result<LayerTimes> parse_layer_times(const std::string& text) {
  bool deep = false;
  const auto keep = [&](int depth, json::parse_event_t, json&) {
    deep = deep || depth > kDeepest;
    return !deep;
  };
  const json document = json::parse(text, keep, false);
  if (deep)
    return wrong(fmt::format("values lie in values more than {} deep, which no file of layer times has", kDeepest));
  if (!document.is_object() || document.value("what", json()) != kWhat) {
    return wrong("this is no file of layer times; `clustar train --record-compute FILE` writes one");
  }
  if (document.value("version", json()) != kVersion) {
    return wrong(fmt::format("layer times of another version; allowed: {}", kVersion));
  }
  const json model = document.value("model", json()), batch = document.value("batch", json()),
             estimated = document.value("estimated", json()), device = document.value("device", json()),
             layers = document.value("layers", json());
  if (!model.is_string() || !device.is_string() || !estimated.is_boolean()) {
    return wrong("'model' and 'device' have to be texts, 'estimated' true or false");
  }
  if (!batch.is_number_unsigned() || batch < 1 || batch > kMostBatch) {
    return wrong(fmt::format("'batch' has to be a number from 1 to {}", kMostBatch));
  }
  if (!layers.is_array() || layers.empty() || layers.size() > kMostLayers) {
    return wrong(fmt::format("'layers' has to be a list of 1 to {} layers", kMostLayers));
  }
  LayerTimes times{.model = model, .batch = batch, .estimated = estimated, .device = device, .layers = {}};
  for (const json& layer : layers) {
    auto time = layer_of(layer, times.layers.size() + 1);
    if (!time) return tl::unexpected(time.error());
    times.layers.push_back(std::move(*time));
  }
  if (times.forward_s() + times.backward_s() == 0) {
    return wrong("no layer takes any time; a recording of at least two steps says how much");
  }
  return times;
}

Result<LayerTimes> load_layer_times(const std::string& path) {
  const auto text = report::read_text(path);
  if (!text) return tl::unexpected(text.error());
  auto times = parse_layer_times(*text);
  if (!times) return fail(times.error().code, fmt::format("'{}': {}", path, times.error().message));
  return times;
}

Result<void> check_fits(const LayerTimes& times, const Model& model) {
  const std::vector<graph::Node>& nodes = model.graph.nodes();
  if (times.model != model.name) {
    return wrong(fmt::format("these are times of {}, not of {}", times.model, model.name));
  }
  if (times.layers.size() + 1 != nodes.size()) {
    return wrong(fmt::format("times of {} layers; this {} has {}", times.layers.size(), model.name, nodes.size() - 1));
  }
  for (std::size_t n = 1; n < nodes.size(); ++n) {
    if (times.layers[n - 1].name == nodes[n].name) continue;
    return wrong(
        fmt::format("layer {} is '{}'; that of {} is '{}'", n, times.layers[n - 1].name, model.name, nodes[n].name));
  }
  return {};
}

}  // namespace clustar::bench::trainer
