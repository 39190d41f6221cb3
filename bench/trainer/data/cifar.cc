#include "bench/trainer/data/cifar.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "bench/trainer/data/file_bytes.h"

namespace clustar::bench::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostCifarBytes = std::uint64_t{1} << 30;
constexpr const char* kTestFile = "test_batch.bin";

}  // namespace

std::vector<std::string> cifar_files(const std::string& directory) {
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back(fmt::format("data_batch_{}.bin", i));
  names.emplace_back(kTestFile);
  std::erase_if(names, [&](const std::string& name) {
    std::error_code unknown;
    return !fs::exists(fs::path(directory) / name, unknown);
  });
  return names;
}

Result<void> append_cifar(std::span<const std::uint8_t> bytes, const std::string& name, Dataset& dataset) {
  if (bytes.empty() || bytes.size() % kCifarRecord != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' has {} bytes; CIFAR-10's binary files have records of {}: {} of them, and {} bytes", name,
                    bytes.size(), kCifarRecord, bytes.size() / kCifarRecord, bytes.size() % kCifarRecord));
  }
  for (std::size_t at = 0; at < bytes.size(); at += kCifarRecord) {
    if (bytes[at] < kCifarClasses) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}': expected a label from 0 to {}, found {} in record {} (byte {})", name,
                            kCifarClasses - 1, bytes[at], at / kCifarRecord, at));
  }
  constexpr std::size_t kPlane = kCifarSide * kCifarSide;
  dataset.pixels.reserve(dataset.pixels.size() + bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += kCifarRecord) {
    dataset.labels.push_back(bytes[at]);
    const std::span<const std::uint8_t> planes = bytes.subspan(at + 1, 3 * kPlane);
    for (std::size_t i = 0; i < kPlane; ++i) {
      for (std::size_t colour = 0; colour < 3; ++colour) dataset.pixels.push_back(planes[colour * kPlane + i]);
    }
  }
  return {};
}

Result<Dataset> load_cifar(const std::string& path, std::size_t side, std::size_t classes) {
  if (classes < kCifarClasses) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is a CIFAR-10 data set, of {} classes; the model has {}: allowed are {} or more "
                            "(--classes)",
                            path, kCifarClasses, classes, kCifarClasses));
  }
  Dataset dataset;
  dataset.rows = dataset.columns = side;
  dataset.stored_side = side == kCifarSide ? 0 : kCifarSide;
  dataset.channels = 3;
  dataset.classes = classes;
  dataset.scale = kImageScale;
  dataset.offset = kImageOffset;
  std::error_code unknown;
  const bool is_folder = fs::is_directory(path, unknown);
  const std::vector<std::string> names = is_folder ? cifar_files(path) : std::vector<std::string>{""};
  for (const std::string& name : names) {
    const std::string file = is_folder ? (fs::path(path) / name).string() : path;
    const auto bytes = file_bytes(file, kMostCifarBytes);
    if (!bytes) return tl::unexpected(bytes.error());
    const std::size_t before = dataset.size();
    if (auto ok = append_cifar(*bytes, file, dataset); !ok) return tl::unexpected(ok.error());
    if (name == kTestFile && before > 0) dataset.held_out = dataset.size() - before;
  }
  dataset.source = is_folder ? fmt::format("{} (CIFAR-10, {} file{})", path, names.size(), names.size() == 1 ? "" : "s")
                             : fmt::format("{} (CIFAR-10)", path);
  return dataset;
}

}  // namespace clustar::bench::trainer
