// A folder with one sub-folder per class, as torchvision's ImageFolder takes it: images are read when a batch needs
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "bench/trainer/data/dataset.h"
#include "bench/trainer/data/square.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct FolderOptions {
  std::size_t side = 0;     // of the examples
  std::size_t classes = 0;  // of the model: the folder may have fewer
  bool skip_damaged = false;
};

// Classes are the sub-folders in the order of their names, examples of a class the files below it in the order of
// theirs; hidden ones and files whose suffix is no image's are left out. Errors name the folder or file: no sub-folder,
// more of them than classes, one without images, a kind of image that is not read (but with skip_damaged). No file is
// opened.
Result<Dataset> list_image_folder(const std::string& path, const FolderOptions& options);

struct LeftOut {
  std::size_t files = 0;
  std::string first;  // what was wrong with the first of them
};
// Decodes every image once, and takes those that cannot be decoded out of the data set: before the split, so that all
// ranks train on the same examples in the same order.
LeftOut leave_out_damaged(Dataset& dataset);

// Example `index` of a listed folder: the image's centred square, resampled to rows x columns. Errors name the file.
Result<void> read_example(const Dataset& dataset, std::size_t index, std::uint8_t* pixels);

// A JPEG, PPM or PGM, told apart by how it begins. The caller knows the file's name.
Result<Square> read_image(std::span<const std::uint8_t> bytes);

}  // namespace clustar::bench::trainer
