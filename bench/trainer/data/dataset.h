// Labelled examples, images or texts, in memory or in files, their split into training and held-out examples, and the
// batches of an epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer {

// As colour images are usually given to models: around zero, and about one wide.
inline constexpr float kImageScale = 4.0f / 255.0f;
inline constexpr float kImageOffset = -2;

struct Dataset {
  std::string source;  // for people: the file, or what generated it
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t channels = 1;
  std::size_t classes = 0;
  std::size_t labels_per_example = 1;
  std::vector<std::uint8_t> pixels;  // size() x rows x columns x channels; of a text, its tokens as rows
  std::vector<std::uint16_t> labels;
  // What the network takes of a pixel p: p times scale plus offset.
  float scale = 1.0f / 255.0f;
  float offset = 0;
  std::size_t held_out = 0;  // so many of the last examples are; 0: split_dataset() draws them
  // What `pixels` has are images of this side, which gather() makes rows x columns; 0: they are so already.
  std::size_t stored_side = 0;
  // Of each example the image below `folder` that gather() decodes; `pixels` is empty then.
  std::string folder;
  std::vector<std::string> files;
  std::uint64_t files_digest = 0;  // of their names, order and sizes

  std::size_t size() const { return labels.size() / labels_per_example; }
  std::size_t image_elements() const { return rows * columns * channels; }
};

// Indices into a data set. Held out is, unless the data set says what, the last fifth (rounded down) of a seeded
// shuffle of all examples: files are sorted by writer, so file order would train and test on different people.
struct Split {
  std::vector<std::uint32_t> train;
  std::vector<std::uint32_t> held_out;
};
// kInvalidArgument for fewer than 5 examples.
Result<Split> split_dataset(const Dataset& dataset, std::uint64_t seed);

// The order in which an epoch (from 0) visits the training examples: a new shuffle for each epoch.
std::vector<std::uint32_t> epoch_order(const Split& split, std::uint64_t seed, int epoch);

// What rank `rank` of `size` takes of a list: contiguous shares in rank order whose lengths differ by at most one.
std::span<const std::uint32_t> share(std::span<const std::uint32_t> list, int rank, int size);

// One batch as the network takes it.
struct Batch {
  std::vector<float> x;
  std::vector<std::uint16_t> labels;  // labels_per_example of each
};
// Errors are those of read_example(), for images in files.
Result<void> gather(const Dataset& dataset, std::span<const std::uint32_t> examples, Batch& batch);

// Covers pixels, labels and their order; of images in files names and sizes instead of pixels.
std::uint64_t digest(const Dataset& dataset);

}  // namespace clustar::bench::trainer
