// Reads data sets in the IDX format (MNIST's): big-endian header, then unsigned bytes; plain or gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/trainer/data/dataset.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

//   0      2     3     4              4 + 4 * dimensions
//   +------+-----+-----+-------- ... +------------- ...
//   | 0  0 | 0x8 | dim | sizes, BE32 | values, row-major
//   +------+-----+-----+-------- ... +------------- ...
//   images: dim = 3 (count, rows, columns), magic 0x00000803; labels: dim = 1, magic 0x00000801.
struct IdxFile {
  std::vector<std::size_t> sizes;
  std::vector<std::uint8_t> values;
};

struct IdxPair {
  std::string images;
  std::string labels;
};

// `dimensions` is what the caller needs: 3 for images, 1 for labels. A name that ends in .gz is decompressed.
// Errors name the file, what was expected and what was found: cannot be opened, too short, wrong magic, absurd size,
// fewer or more values than announced, truncated or damaged gzip. Memory grows with the data that is really there,
// never with what a header claims.
Result<IdxFile> read_idx(const std::string& path, std::size_t dimensions);

// Whether a file's name, without directories, is that of images: ...-images-idx3-ubyte, as find_idx_pair() takes it.
bool is_idx_images(const std::string& name);

// `data` is a directory, or an images file. In a directory: t10k-images-idx3-ubyte, otherwise train-images-idx3-ubyte,
// otherwise the first *-images-idx3-ubyte by name; each also with .gz, and with '.' for the '-' before idx3. The labels
// lie beside it under the same name with labels and idx1.
Result<IdxPair> find_idx_pair(const std::string& data);

// Both files checked against each other: equal counts, labels below `classes`.
Result<Dataset> load_idx(const IdxPair& pair, std::size_t classes);

}  // namespace clustar::bench::trainer
