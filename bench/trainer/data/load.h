// The examples that a model is trained on: from what lies at a path, or generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/trainer/data/dataset.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// What a model is trained on.
enum class DataKind : std::uint8_t { kDigits, kImages, kText };

// What a model takes, and its name for errors.
struct DataFor {
  std::string model;
  DataKind kind = DataKind::kDigits;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t classes = 0;
};

// What is at `path` decides, and of a file named *.bin what `wanted` takes: IDX files, CIFAR-10's binary files, a
// folder of images with a sub-folder per class, a text. `skip_damaged`: see FolderOptions. Errors name what is there,
// what `wanted` takes, and what the readers say.
Result<Dataset> load(const std::string& path, const DataFor& wanted, bool skip_damaged);

// `count` examples; 0: as many as are usual. Error: images that do not fit the memory that they may have.
Result<Dataset> generate(const DataFor& wanted, std::size_t count, std::uint64_t seed);

}  // namespace clustar::bench::trainer
