#include "bench/trainer/data/load.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "bench/trainer/data/cifar.h"
#include "bench/trainer/data/digits.h"
#include "bench/trainer/data/idx.h"
#include "bench/trainer/data/image_folder.h"
#include "bench/trainer/data/images.h"
#include "bench/trainer/data/text.h"
#include "bench/trainer/data/text_file.h"

namespace clustar::bench::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostGeneratedBytes = std::size_t{4} << 30;

enum class Found : std::uint8_t { kIdx, kCifar, kFolder, kFile };

bool has_idx(const std::string& directory) {
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (is_idx_images(entry->path().filename().string())) return true;
  }
  return false;
}

bool has_folders(const std::string& directory) {
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown)) return true;
  }
  return false;
}

// A name of images' binary files says nothing where a text is wanted: what is in it does.
std::optional<Found> find(const std::string& path, DataKind wanted) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown)) {
    const std::string name = fs::path(path).filename().string();
    if (is_idx_images(name)) return Found::kIdx;
    return name.ends_with(".bin") && wanted != DataKind::kText ? Found::kCifar : Found::kFile;
  }
  if (has_idx(path)) return Found::kIdx;
  if (!cifar_files(path).empty()) return Found::kCifar;
  if (has_folders(path)) return Found::kFolder;
  return std::nullopt;
}

const char* name_of(std::optional<Found> found) {
  if (!found) return "a folder without any data that is known";
  switch (*found) {
    case Found::kIdx: return "an IDX data set";
    case Found::kCifar: return "a CIFAR-10 data set";
    case Found::kFolder: return "a folder of folders";
    case Found::kFile: break;
  }
  return "a file whose name is that of no data set of images";
}

const char* taken_by(DataKind kind) {
  switch (kind) {
    case DataKind::kDigits:
      return "IDX files: *-images-idx3-ubyte with its labels, plain or .gz, or their folder (t10k comes before train)";
    case DataKind::kImages:
      return "CIFAR-10's binary files (data_batch_1.bin and so on, or one *.bin), or a folder with a sub-folder of "
             "JPEG, "
             "PPM or PGM files for each class";
    case DataKind::kText: break;
  }
  return "a text file";
}

bool fits(DataKind kind, std::optional<Found> found) {
  switch (kind) {
    case DataKind::kDigits: return found == Found::kIdx;
    case DataKind::kImages: return found == Found::kCifar || found == Found::kFolder;
    case DataKind::kText: break;
  }
  return found == Found::kFile;
}

Result<Dataset> load_digits(const std::string& path, const DataFor& wanted) {
  const auto pair = find_idx_pair(path);
  if (!pair) return tl::unexpected(pair.error());
  auto dataset = load_idx(*pair, wanted.classes);
  if (dataset && (dataset->rows != wanted.rows || dataset->columns != wanted.columns)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has images of {} x {}; model {} takes {} x {}", pair->images, dataset->rows,
                            dataset->columns, wanted.model, wanted.rows, wanted.columns));
  }
  return dataset;
}

}  // namespace

Result<Dataset> load(const std::string& path, const DataFor& wanted, bool skip_damaged) {
  std::error_code unknown;
  if (!fs::exists(path, unknown)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no file or directory '{}'", path));
  }
  const std::optional<Found> found = find(path, wanted.kind);
  if (!fits(wanted.kind, found)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is {}; model {} takes {}", path, name_of(found),
                                                         wanted.model, taken_by(wanted.kind)));
  }
  if (wanted.kind == DataKind::kDigits) return load_digits(path, wanted);
  if (wanted.kind == DataKind::kText) return load_text(path);
  if (found == Found::kCifar) return load_cifar(path, wanted.rows, wanted.classes);
  return list_image_folder(path, {.side = wanted.rows, .classes = wanted.classes, .skip_damaged = skip_damaged});
}

Result<Dataset> generate(const DataFor& wanted, std::size_t count, std::uint64_t seed) {
  const auto or_usual = [&](std::size_t usual) { return count != 0 ? count : usual; };
  switch (wanted.kind) {
    case DataKind::kDigits: return generate_digits(or_usual(kDefaultDigits), seed);
    case DataKind::kText: return generate_text(or_usual(kDefaultTexts), seed);
    case DataKind::kImages: break;
  }
  const std::size_t most = kMostGeneratedBytes / (wanted.rows * wanted.columns * 3);
  if (or_usual(kDefaultImages) > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} images of {} x {} do not fit the {} MiB that are kept in memory; allowed: {} "
                            "(--examples), or smaller ones (--image-size)",
                            or_usual(kDefaultImages), wanted.rows, wanted.columns, kMostGeneratedBytes >> 20, most));
  }
  return generate_images(or_usual(kDefaultImages), wanted.rows, wanted.classes, seed);
}

}  // namespace clustar::bench::trainer
