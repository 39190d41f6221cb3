// A folder of its own for a test, and the files that data sets are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/trainer/data/dataset.h"

namespace clustar::bench::trainer {

class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Makes the folders that `name` needs. Returns its path.
  std::string write(const std::string& name, const std::string& bytes) const;

 private:
  std::filesystem::path path_;
};

inline std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// P6 with pixels that `shade` decides.
std::string ppm(std::size_t columns, std::size_t rows, std::uint8_t shade);
// Empty in a build without libjpeg.
std::string jpeg(std::size_t columns, std::size_t rows, std::uint8_t shade, bool grey = false,
                 bool progressive = false);
// Records whose labels are 0 to 9 by turns.
std::string cifar(std::size_t records);

std::vector<std::uint32_t> numbers(std::uint32_t first, std::uint32_t count);
// What gather() makes of them, which has to succeed.
Batch batch_of(const Dataset& dataset, const std::vector<std::uint32_t>& examples);

}  // namespace clustar::bench::trainer
