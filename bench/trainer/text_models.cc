#include "bench/trainer/text_models.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "bench/trainer/data/text.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kWidth = 128;
constexpr std::size_t kBlocks = 4;
constexpr std::size_t kHeads = 4;
constexpr double kDeviation = 0.02;

}  // namespace

Model make_gpt(const ModelOptions& options) {
  using graph::Value;
  const std::size_t width = kWidth / options.width_divisor;
  // What is added to the residual stream starts smaller, so that the stream does not grow with depth (GPT-2).
  const double residual = kDeviation / std::sqrt(2.0 * kBlocks);
  const auto linear = [](std::size_t outputs, double deviation) {
    return graph::Linear{.outputs = outputs, .per_position = true, .deviation = deviation};
  };
  graph::Graph net({kTextTokens, 1, 1});
  Value stream = net.then("embedding", graph::Embedding{kTextVocabulary, width});
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const std::string name = fmt::format("h.{}.", block);
    net.add(name + "ln_1", graph::LayerNorm{}, {stream});
    net.then(name + "attn.c_attn", linear(3 * width, kDeviation));
    net.then(name + "attn", graph::Attention{kHeads});
    net.then(name + "attn.c_proj", linear(width, residual));
    stream = net.add(name + "attn.add", graph::Add{}, {stream, net.last()});
    net.then(name + "ln_2", graph::LayerNorm{});
    net.then(name + "mlp.c_fc", linear(4 * width, kDeviation));
    net.then(name + "mlp.gelu", graph::Gelu{});
    net.then(name + "mlp.c_proj", linear(width, residual));
    stream = net.add(name + "mlp.add", graph::Add{}, {stream, net.last()});
  }
  net.then("ln_f", graph::LayerNorm{});
  net.then("lm_head",
           graph::Linear{.outputs = kTextVocabulary, .bias = false, .per_position = true, .deviation = kDeviation});
  return {{},
          fmt::format("{} tokens of {}, {} blocks, {} heads, width {}", kTextTokens, kTextVocabulary, kBlocks, kHeads,
                      width),
          DataKind::kText,
          std::move(net),
          kTextVocabulary,
          kTextTokens};
}

}  // namespace clustar::bench::trainer
