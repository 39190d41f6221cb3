#include "bench/trainer/parallel/layer_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "transport/base/rng.h"

namespace clustar::bench::trainer::parallel {
namespace {

using Word = std::uint32_t;  // blocks are of float32

// Another one for each word of each block of each exchange, so that bytes of another place, rank or step are found.
Word first_word(std::uint64_t number, std::size_t from, std::size_t to) {
  return static_cast<Word>(mix64(number * kGoldenGamma + (from << 32 | to)));
}
constexpr Word kStep = 0x9E3779B1;

void fill(std::span<std::byte> block, Word word) {
  for (std::size_t at = 0; at < block.size(); at += sizeof word, word += kStep)
    std::memcpy(block.data() + at, &word, sizeof word);
}

// The first byte of the first word that differs.
std::optional<std::size_t> first_wrong(std::span<const std::byte> block, Word word) {
  for (std::size_t at = 0; at < block.size(); at += sizeof word, word += kStep) {
    Word found = 0;
    std::memcpy(&found, block.data() + at, sizeof found);
    if (found != word) return at;
  }
  return std::nullopt;
}

std::size_t most_bytes(const LayerExchanges& layer, std::vector<std::size_t> Collective::BlockSizes::*way) {
  std::size_t most = 1;
  for (const auto* pass : {&layer.forward, &layer.backward}) {
    for (const Collective::BlockSizes& bytes : *pass) {
      most = std::max(most, std::accumulate((bytes.*way).begin(), (bytes.*way).end(), std::size_t{0}));
    }
  }
  return most;
}

}  // namespace

LayerTraffic::LayerTraffic(const std::vector<LayerExchanges>& layers, const std::vector<Collective*>& collectives,
                           int rank, std::size_t tensors)
    : rank_(static_cast<std::size_t>(rank)), place_(tensors / 2) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Layer layer{.exchanges = layers[i], .collective = collectives[i]};
    layer.out.resize(most_bytes(layers[i], &Collective::BlockSizes::send));
    layer.in.resize(most_bytes(layers[i], &Collective::BlockSizes::recv));
    layer.mapped_out = layer.collective->map(layer.out.data(), layer.out.size());
    layer.mapped_in = layer.collective->map(layer.in.data(), layer.in.size());
    layers_.push_back(std::move(layer));
  }
}

void LayerTraffic::forward(std::size_t first_tensor, std::size_t count) {
  if (place_ < first_tensor || place_ >= first_tensor + count) return;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (const Collective::BlockSizes& bytes : layers_[i].exchanges.forward) exchange(i, bytes);
  }
}

void LayerTraffic::backward(std::size_t tensor) {
  if (tensor != place_) return;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    for (const Collective::BlockSizes& bytes : layers_[i].exchanges.backward) exchange(i, bytes);
  }
}

void LayerTraffic::exchange(std::size_t index, const Collective::BlockSizes& bytes) {
  if (error_) return;
  Layer& layer = layers_[index];
  LayerCounts& counts = counts_[index];
  const std::uint64_t number = layer.number++;
  std::size_t at = 0;
  for (std::size_t to = 0; to < bytes.send.size(); ++to) {
    fill(std::span(layer.out).subspan(at, bytes.send[to]), first_word(number, rank_, to));
    at += bytes.send[to];
  }
  const auto start = std::chrono::steady_clock::now();
  const auto outcome = layer.collective->all_to_all(layer.mapped_out, layer.mapped_in, bytes)->wait();
  counts.exposed_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string name = fmt::format("all-to-all {} of {}", number + 1, layer.exchanges.name);
  if (!outcome) {
    error_ = Error{outcome.error().code, fmt::format("{} failed: {}", name, outcome.error().message)};
    return;
  }
  at = 0;
  for (std::size_t from = 0; from < bytes.recv.size(); ++from) {
    const auto wrong = first_wrong(std::span(layer.in).subspan(at, bytes.recv[from]), first_word(number, from, rank_));
    if (wrong) {
      error_ = Error{ErrorCode::kRemote, fmt::format("{} brought rank {} wrong bytes: byte {} of the {} from rank {}",
                                                     name, rank_, *wrong, bytes.recv[from], from)};
      return;
    }
    at += bytes.recv[from];
    if (from == rank_) continue;
    counts.bytes_received += bytes.recv[from];
    counts.bytes_sent += bytes.send[from];
  }
  ++counts.exchanges;
}

Result<void> LayerTraffic::check() const { return error_ ? Result<void>(tl::unexpected(*error_)) : Result<void>(); }

}  // namespace clustar::bench::trainer::parallel
