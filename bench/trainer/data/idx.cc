#include "bench/trainer/data/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#ifdef CLUSTAR_HAVE_ZLIB
#include <zlib.h>
#endif

namespace clustar::bench::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::size_t kMaxSide = 4096;           // pixels
constexpr std::size_t kMaxCount = 100'000'000;   // examples
constexpr std::uint64_t kMaxBytes = 2ull << 30;  // all values of one file
constexpr std::size_t kReadBytes = 1u << 20;

class Source {
 public:
  virtual ~Source() = default;
  // Reads until `size` bytes or the end; returns how many. Errors name the file.
  virtual Result<std::size_t> read(std::uint8_t* data, std::size_t size) = 0;
};

class PlainSource final : public Source {
 public:
  PlainSource(std::string path, std::FILE* file) : path_(std::move(path)), file_(file, &std::fclose) {}

  Result<std::size_t> read(std::uint8_t* data, std::size_t size) override {
    const std::size_t got = std::fread(data, 1, size, file_.get());
    if (got < size && std::ferror(file_.get())) {
      return fail(ErrorCode::kSystem, fmt::format("cannot read '{}': {}", path_, std::strerror(errno)));
    }
    return got;
  }

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

#ifdef CLUSTAR_HAVE_ZLIB
class GzipSource final : public Source {
 public:
  GzipSource(std::string path, gzFile file) : path_(std::move(path)), file_(file, &gzclose) {}

  Result<std::size_t> read(std::uint8_t* data, std::size_t size) override {
    std::size_t total = 0;
    while (total < size) {
      const int got = gzread(file_.get(), data + total, static_cast<unsigned>(std::min(size - total, kReadBytes)));
      int code = Z_OK;
      const char* text = gzerror(file_.get(), &code);
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        return fail(ErrorCode::kInvalidArgument,
                    code == Z_BUF_ERROR ? fmt::format("'{}' is a truncated gzip file; copy it again", path_)
                                        : fmt::format("'{}' is a damaged gzip file ({})", path_, text));
      }
      if (got == 0) break;
      total += static_cast<std::size_t>(got);
    }
    if (total > 0 && gzdirect(file_.get()) != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is named .gz but is no gzip file; remove the suffix if it is plain", path_));
    }
    return total;
  }

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};
#endif

bool is_gzip_name(const std::string& path) { return path.ends_with(".gz"); }

Result<std::unique_ptr<Source>> open_source(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is a directory, not an IDX file", path));
  }
  // Opening a pipe would wait for its other end.
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a regular file, so not an IDX file", path));
  }
  if (is_gzip_name(path)) {
#ifdef CLUSTAR_HAVE_ZLIB
    errno = 0;
    if (gzFile file = gzopen(path.c_str(), "rb")) return std::make_unique<GzipSource>(path, file);
    return fail(ErrorCode::kSystem, fmt::format("cannot open '{}': {}", path, std::strerror(errno ? errno : ENOMEM)));
#else
    return fail(ErrorCode::kUnavailable,
                fmt::format("'{0}' is compressed and this build is without zlib; run 'gunzip -k {0}', or install "
                            "zlib1g-dev and configure with -DCLUSTAR_WITH_ZLIB=ON",
                            path));
#endif
  }
  if (std::FILE* file = std::fopen(path.c_str(), "rb")) return std::make_unique<PlainSource>(path, file);
  return fail(ErrorCode::kSystem, fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
}

std::uint32_t load_be32(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
}

tl::unexpected<Error> malformed(const std::string& path, const std::string& expected, const std::string& found) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}': expected {}, found {}", path, expected, found));
}

// Dimensions of one file, range-checked; the product fits kMaxBytes.
Result<std::vector<std::size_t>> read_header(Source& source, const std::string& path, std::size_t dimensions) {
  std::array<std::uint8_t, 4 + 4 * 3> header{};
  const std::size_t bytes = 4 + 4 * dimensions;
  const auto got = source.read(header.data(), bytes);
  if (!got) return tl::unexpected(got.error());
  if (*got >= 4) {
    const std::uint32_t expected = std::uint32_t{kUnsignedByte} << 8 | static_cast<std::uint32_t>(dimensions);
    const std::uint32_t magic = load_be32(header.data());
    if (magic != expected) {
      return malformed(path,
                       fmt::format("magic 0x{:08x} (unsigned bytes in {} dimension{})", expected, dimensions,
                                   dimensions == 1 ? "" : "s"),
                       fmt::format("0x{:08x}", magic));
    }
  }
  if (*got < bytes) return malformed(path, fmt::format("a header of {} bytes", bytes), fmt::format("{} bytes", *got));
  std::vector<std::size_t> sizes;
  std::uint64_t product = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::size_t size = load_be32(header.data() + 4 + 4 * i);
    const std::size_t limit = i == 0 ? kMaxCount : kMaxSide;
    if (size == 0 || size > limit) {
      return malformed(path, fmt::format("dimension {} between 1 and {}", i, limit), fmt::format("{}", size));
    }
    product *= size;  // at most 1e8 * 4096^2, far below 2^64
    sizes.push_back(size);
  }
  if (product > kMaxBytes) {
    return malformed(path, fmt::format("at most {} values", kMaxBytes),
                     fmt::format("{} announced ({})", product, fmt::join(sizes, " x ")));
  }
  return sizes;
}

// The name of the labels that belong to an images file, without directories. Empty when it is no images file.
std::string labels_name(std::string name) {
  const std::size_t images = name.rfind("images");
  const std::size_t idx3 = name.rfind("idx3");
  if (images == std::string::npos || idx3 == std::string::npos || idx3 < images) return {};
  name.replace(idx3, 4, "idx1");
  return name.replace(images, 6, "labels");
}

// Lower is better; nothing for a name that is no images file.
std::optional<int> rank_of(const std::string& name) {
  const std::string base = is_gzip_name(name) ? name.substr(0, name.size() - 3) : name;
  if (!base.ends_with("images-idx3-ubyte") && !base.ends_with("images.idx3-ubyte")) return std::nullopt;
  const int group = name.starts_with("t10k-") ? 0 : name.starts_with("train-") ? 1 : 2;
  return 2 * group + (is_gzip_name(name) ? 1 : 0);
}

// The labels file beside an images file, compressed or not.
Result<IdxPair> pair_of(const fs::path& images) {
  const std::string wanted = labels_name(images.filename().string());
  if (wanted.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no images file by its name; expected ...-images-idx3-ubyte or that with .gz",
                            images.string()));
  }
  const std::string other = is_gzip_name(wanted) ? wanted.substr(0, wanted.size() - 3) : wanted + ".gz";
  std::error_code ignored;
  for (const std::string& name : {wanted, other}) {
    if (fs::exists(images.parent_path() / name, ignored)) {
      return IdxPair{images.string(), (images.parent_path() / name).string()};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' has no labels: '{}' is not beside it (nor '{}')", images.string(), wanted, other));
}

}  // namespace

Result<IdxFile> read_idx(const std::string& path, std::size_t dimensions) {
  auto source = open_source(path);
  if (!source) return tl::unexpected(source.error());
  auto sizes = read_header(**source, path, dimensions);
  if (!sizes) return tl::unexpected(sizes.error());
  std::size_t bytes = 1;
  for (const std::size_t size : *sizes) bytes *= size;

  IdxFile file{std::move(*sizes), {}};
  while (file.values.size() < bytes) {
    const std::size_t at = file.values.size();
    const std::size_t want = std::min(bytes - at, kReadBytes);
    file.values.resize(at + want);
    const auto got = (*source)->read(file.values.data() + at, want);
    if (!got) return tl::unexpected(got.error());
    if (*got < want) {
      return malformed(path, fmt::format("{} bytes of values ({})", bytes, fmt::join(file.sizes, " x ")),
                       fmt::format("only {}", at + *got));
    }
  }
  std::uint8_t beyond = 0;
  const auto extra = (*source)->read(&beyond, 1);
  if (!extra) return tl::unexpected(extra.error());
  if (*extra > 0) {
    return malformed(path, fmt::format("the end after {} bytes of values ({})", bytes, fmt::join(file.sizes, " x ")),
                     "more bytes");
  }
  return file;
}

bool is_idx_images(const std::string& name) { return rank_of(name).has_value(); }

Result<IdxPair> find_idx_pair(const std::string& data) {
  std::error_code error;
  if (!fs::exists(data, error)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no file or directory '{}'", data));
  }
  if (!fs::is_directory(data, error)) return pair_of(data);
  std::optional<std::pair<int, std::string>> best;
  fs::directory_iterator entries(data, error);
  if (error) return fail(ErrorCode::kSystem, fmt::format("cannot list '{}': {}", data, error.message()));
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const std::optional<int> rank = rank_of(name);
    if (!rank) continue;
    const std::pair<int, std::string> candidate{*rank, name};
    if (!best || candidate < *best) best = candidate;
  }
  if (!best) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no data set in '{}': expected t10k-images-idx3-ubyte, train-images-idx3-ubyte or another "
                            "*-images-idx3-ubyte with its labels, plain or .gz",
                            data));
  }
  return pair_of(fs::path(data) / best->second);
}

Result<Dataset> load_idx(const IdxPair& pair, std::size_t classes) {
  auto images = read_idx(pair.images, 3);
  if (!images) return tl::unexpected(images.error());
  auto labels = read_idx(pair.labels, 1);
  if (!labels) return tl::unexpected(labels.error());
  if (labels->sizes[0] != images->sizes[0]) {
    return malformed(pair.labels, fmt::format("{} labels, one per image of '{}'", images->sizes[0], pair.images),
                     fmt::format("{}", labels->sizes[0]));
  }
  for (std::size_t i = 0; i < labels->values.size(); ++i) {
    if (labels->values[i] >= classes) {
      return malformed(pair.labels, fmt::format("labels from 0 to {}", classes - 1),
                       fmt::format("{} at example {}", labels->values[i], i));
    }
  }
  Dataset dataset;
  dataset.source = pair.images;
  dataset.rows = images->sizes[1];
  dataset.columns = images->sizes[2];
  dataset.classes = classes;
  dataset.pixels = std::move(images->values);
  dataset.labels.assign(labels->values.begin(), labels->values.end());
  return dataset;
}

}  // namespace clustar::bench::trainer
