#include "bench/trainer/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "bench/trainer/data/image_folder.h"
#include "bench/trainer/data/square.h"
#include "bench/trainer/digest.h"
#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::uint64_t kSplitStream = 2;
constexpr std::uint64_t kFirstEpochStream = 1u << 20;

}  // namespace

Result<Split> split_dataset(const Dataset& dataset, std::uint64_t seed) {
  constexpr std::size_t kParts = 5;
  if (dataset.size() < kParts) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has {} examples; at least {} are needed to hold one fifth out", dataset.source,
                            dataset.size(), kParts));
  }
  if (dataset.held_out > 0) {
    Split split;
    split.train.resize(dataset.size() - dataset.held_out);
    split.held_out.resize(dataset.held_out);
    std::iota(split.train.begin(), split.train.end(), 0u);
    std::iota(split.held_out.begin(), split.held_out.end(), static_cast<std::uint32_t>(split.train.size()));
    return split;
  }
  Rng rng(seed, kSplitStream);
  std::vector<std::uint32_t> order = permutation(dataset.size(), rng);
  const auto first_held_out = order.end() - static_cast<std::ptrdiff_t>(dataset.size() / kParts);
  Split split;
  split.held_out.assign(first_held_out, order.end());
  order.erase(first_held_out, order.end());
  split.train = std::move(order);
  return split;
}

std::vector<std::uint32_t> epoch_order(const Split& split, std::uint64_t seed, int epoch) {
  Rng rng(seed, kFirstEpochStream + static_cast<std::uint64_t>(epoch));
  std::vector<std::uint32_t> order = permutation(split.train.size(), rng);
  for (std::uint32_t& index : order) index = split.train[index];
  return order;
}

std::span<const std::uint32_t> share(std::span<const std::uint32_t> list, int rank, int size) {
  const auto r = static_cast<std::size_t>(rank);
  const auto n = static_cast<std::size_t>(size);
  const std::size_t from = list.size() * r / n;
  return list.subspan(from, list.size() * (r + 1) / n - from);
}

Result<void> gather(const Dataset& dataset, std::span<const std::uint32_t> examples, Batch& batch) {
  const std::size_t pixels = dataset.image_elements();
  const std::size_t labels = dataset.labels_per_example;
  batch.x.resize(examples.size() * pixels);
  batch.labels.resize(examples.size() * labels);
  std::vector<std::uint8_t> made(dataset.files.empty() && dataset.stored_side == 0 ? 0 : pixels);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const std::uint8_t* from = made.data();
    if (!dataset.files.empty()) {
      if (const auto ok = read_example(dataset, examples[i], made.data()); !ok) {
        return fail(ok.error().code, ok.error().message + "; --skip-damaged leaves such images out");
      }
    } else if (dataset.stored_side != 0) {
      const std::size_t stored = dataset.stored_side * dataset.stored_side * dataset.channels;
      resample(dataset.pixels.data() + examples[i] * stored, dataset.stored_side, dataset.rows, made.data());
    } else {
      from = dataset.pixels.data() + examples[i] * pixels;
    }
    float* to = batch.x.data() + i * pixels;
    for (std::size_t p = 0; p < pixels; ++p) to[p] = static_cast<float>(from[p]) * dataset.scale + dataset.offset;
    std::copy_n(dataset.labels.data() + examples[i] * labels, labels, batch.labels.data() + i * labels);
  }
  return {};
}

std::uint64_t digest(const Dataset& dataset) {
  return digest(
      std::as_bytes(std::span(dataset.labels)),
      digest(std::as_bytes(std::span(dataset.pixels)), dataset.rows ^ dataset.files_digest ^ dataset.held_out));
}

}  // namespace clustar::bench::trainer
