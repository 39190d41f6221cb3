// CIFAR-10's binary version: records of a label and 3 x 32 x 32 bytes, a colour after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/trainer/data/dataset.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

//   0       1              1025             2049            3073
//   +-------+--------------+----------------+---------------+
//   | label | red, 32 x 32 | green, 32 x 32 | blue, 32 x 32 |
//   +-------+--------------+----------------+---------------+
inline constexpr std::size_t kCifarSide = 32;
inline constexpr std::size_t kCifarClasses = 10;
inline constexpr std::size_t kCifarRecord = 1 + 3 * kCifarSide * kCifarSide;

// Of a directory: data_batch_1.bin to data_batch_5.bin, as far as they are there, then test_batch.bin. Empty: it has
// none.
std::vector<std::string> cifar_files(const std::string& directory);

// Appends the records, as size() images of 32 x 32 x 3. `name` is for errors: not a whole number of records, or a label
// above 9, by its record and byte. After an error the data set is as before.
Result<void> append_cifar(std::span<const std::uint8_t> bytes, const std::string& name, Dataset& dataset);

// A directory or a single file. Examples are side x side; what test_batch.bin has is held out where there is anything
// else. `classes` are the model's, at least 10.
Result<Dataset> load_cifar(const std::string& path, std::size_t side, std::size_t classes);

}  // namespace clustar::bench::trainer
