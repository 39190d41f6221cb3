#include "bench/trainer/data/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/trainer/data/file_bytes.h"
#include "bench/trainer/data/jpeg.h"
#include "bench/trainer/data/pnm.h"
#include "bench/trainer/digest.h"

namespace clustar::bench::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kRead{".jpg", ".jpeg", ".ppm", ".pgm", ".pnm"};
constexpr std::array<std::string_view, 6> kOtherImages{".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"};
constexpr const char* kAllowed = "JPEG (.jpg, .jpeg), PPM and PGM (.ppm, .pgm, .pnm)";
constexpr std::uint64_t kMostImageBytes = std::uint64_t{256} << 20;
constexpr std::size_t kMostFiles = 50'000'000;
constexpr int kMostLevels = 8;  // of folders within a class: links may go in circles

struct File {
  std::string name;  // below the folder
  std::uint64_t bytes = 0;
};

template <std::size_t N>
bool has_suffix(const std::array<std::string_view, N>& suffixes, const fs::path& path) {
  std::string suffix = path.extension().string();
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(suffixes.begin(), suffixes.end(), suffix) != suffixes.end();
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

tl::unexpected<Error> cannot_list(const std::string& path, const std::error_code& error) {
  return fail(ErrorCode::kSystem, fmt::format("cannot list '{}': {}", path, error.message()));
}

Result<std::vector<std::string>> class_folders(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown) && !is_hidden(entry->path())) names.push_back(entry->path().filename().string());
  }
  if (error) return cannot_list(path, error);
  std::sort(names.begin(), names.end());
  return names;
}

// Appends the images of one class.
Result<void> list_class(const std::string& path, const std::string& name, bool skip_damaged, std::vector<File>& files) {
  const std::size_t before = files.size();
  const fs::path top = fs::path(path) / name;
  std::error_code error;
  fs::recursive_directory_iterator entry(top, fs::directory_options::follow_directory_symlink, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    const bool is_folder = entry->is_directory(unknown);
    if (is_hidden(entry->path())) {
      if (is_folder) entry.disable_recursion_pending();
      continue;
    }
    if (is_folder) {
      if (entry.depth() < kMostLevels) continue;
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}': folders within a class go at most {} levels deep",
                                                           entry->path().string(), kMostLevels));
    }
    const bool other = has_suffix(kOtherImages, entry->path());
    if (!other && !has_suffix(kRead, entry->path())) continue;
    if (other && !skip_damaged) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is a kind of image that is not read; allowed: {}; --skip-damaged leaves it out",
                              entry->path().string(), kAllowed));
    }
    if (files.size() == kMostFiles) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' has more than {} images", path, kMostFiles));
    }
    const std::uintmax_t bytes = entry->file_size(unknown);
    files.push_back({fs::path(entry->path()).lexically_relative(path).string(), unknown ? 0 : bytes});
  }
  if (error) return cannot_list(top.string(), error);
  if (files.size() == before) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is the folder of a class and has no images; allowed: {}", top.string(), kAllowed));
  }
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
            [](const File& a, const File& b) { return a.name < b.name; });
  return {};
}

void describe(Dataset& dataset, std::size_t classes) {
  dataset.source = fmt::format("{} ({} class{}, {} image{})", dataset.folder, classes, classes == 1 ? "" : "es",
                               dataset.files.size(), dataset.files.size() == 1 ? "" : "s");
}

}  // namespace

Result<Dataset> list_image_folder(const std::string& path, const FolderOptions& options) {
  const auto classes = class_folders(path);
  if (!classes) return tl::unexpected(classes.error());
  if (classes->empty() || classes->size() > options.classes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has {} sub-folders, of which each is a class; allowed: 1 to the model's {} classes "
                            "(--classes)",
                            path, classes->size(), options.classes));
  }
  Dataset dataset;
  dataset.folder = path;
  dataset.rows = dataset.columns = options.side;
  dataset.channels = 3;
  dataset.classes = options.classes;
  dataset.scale = kImageScale;
  dataset.offset = kImageOffset;
  for (std::size_t label = 0; label < classes->size(); ++label) {
    std::vector<File> files;
    if (auto ok = list_class(path, (*classes)[label], options.skip_damaged, files); !ok) {
      return tl::unexpected(ok.error());
    }
    for (File& file : files) {
      dataset.files_digest = digest(std::as_bytes(std::span(file.name)), dataset.files_digest ^ file.bytes);
      dataset.files.push_back(std::move(file.name));
      dataset.labels.push_back(static_cast<std::uint16_t>(label));
    }
  }
  describe(dataset, classes->size());
  return dataset;
}

LeftOut leave_out_damaged(Dataset& dataset) {
  LeftOut left_out;
  std::vector<std::uint8_t> pixels(dataset.image_elements());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < dataset.files.size(); ++i) {
    if (const auto ok = read_example(dataset, i, pixels.data()); !ok) {
      if (left_out.files++ == 0) left_out.first = ok.error().message;
      continue;
    }
    if (kept != i) dataset.files[kept] = std::move(dataset.files[i]);
    dataset.labels[kept++] = dataset.labels[i];
  }
  dataset.files.resize(kept);
  dataset.labels.resize(kept);
  if (left_out.files > 0) {
    for (const std::string& name : dataset.files) {
      dataset.files_digest = digest(std::as_bytes(std::span(name)), dataset.files_digest);
    }
  }
  const std::vector<std::uint16_t>& labels = dataset.labels;
  std::size_t classes = labels.empty() ? 0 : 1;
  for (std::size_t i = 1; i < labels.size(); ++i) classes += labels[i] != labels[i - 1] ? 1 : 0;
  describe(dataset, classes);
  return left_out;
}

Result<Square> read_image(std::span<const std::uint8_t> bytes) {
  if (bytes.size() >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8) return read_jpeg(bytes);
  if (bytes.size() >= 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6')) return read_pnm(bytes);
  return fail(ErrorCode::kInvalidArgument, fmt::format("it does not begin as an image that is read: {}", kAllowed));
}

Result<void> read_example(const Dataset& dataset, std::size_t index, std::uint8_t* pixels) {
  const std::string path = (fs::path(dataset.folder) / dataset.files[index]).string();
  const auto bytes = file_bytes(path, kMostImageBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto square = read_image(*bytes);
  if (!square) {
    return fail(square.error().code, fmt::format("'{}' cannot be read: {}", path, square.error().message));
  }
  resample(square->pixels.data(), square->side, dataset.rows, pixels);
  return {};
}

}  // namespace clustar::bench::trainer
