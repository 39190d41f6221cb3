#include "tests/trainer/data/files.h"

#include <gtest/gtest.h>

#include <cstdio>
#ifdef CLUSTAR_HAVE_JPEG
#include <jpeglib.h>
#endif

#include <cstdlib>
#include <fstream>
#include <numeric>

namespace clustar::bench::trainer {

Folder::Folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "clustar-data-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

Folder::~Folder() { std::filesystem::remove_all(path_); }

std::string Folder::write(const std::string& name, const std::string& bytes) const {
  std::filesystem::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << bytes;
  return file(name);
}

namespace {

std::uint8_t value(std::size_t x, std::size_t y, std::size_t colour, std::uint8_t shade) {
  return static_cast<std::uint8_t>(shade + x / 2 + y / 3 + 40 * colour);
}

}  // namespace

std::string ppm(std::size_t columns, std::size_t rows, std::uint8_t shade) {
  std::string text = "P6\n# of a test\n" + std::to_string(columns) + " " + std::to_string(rows) + "\n255\n";
  for (std::size_t y = 0; y < rows; ++y) {
    for (std::size_t x = 0; x < columns; ++x) {
      for (std::size_t c = 0; c < 3; ++c) text.push_back(static_cast<char>(value(x, y, c, shade)));
    }
  }
  return text;
}

#ifdef CLUSTAR_HAVE_JPEG
std::string jpeg(std::size_t columns, std::size_t rows, std::uint8_t shade, bool grey, bool progressive) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* written = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &written, &size);
  info.image_width = static_cast<JDIMENSION>(columns);
  info.image_height = static_cast<JDIMENSION>(rows);
  info.input_components = grey ? 1 : 3;
  info.in_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (std::size_t y = 0; y < rows; ++y) {
    std::vector<std::uint8_t> line;
    for (std::size_t x = 0; x < columns; ++x) {
      for (std::size_t c = 0; c < (grey ? 1u : 3u); ++c) line.push_back(value(x, y, c, shade));
    }
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<const char*>(written), size);
  jpeg_destroy_compress(&info);
  std::free(written);
  return bytes;
}
#else
std::string jpeg(std::size_t, std::size_t, std::uint8_t, bool, bool) { return {}; }
#endif

std::string cifar(std::size_t records) {
  std::string bytes;
  for (std::size_t i = 0; i < records; ++i) {
    bytes.push_back(static_cast<char>(i % 10));
    for (std::size_t p = 0; p < 3072; ++p) bytes.push_back(static_cast<char>(i * 7 + p / 16));
  }
  return bytes;
}

std::vector<std::uint32_t> numbers(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

Batch batch_of(const Dataset& dataset, const std::vector<std::uint32_t>& examples) {
  Batch batch;
  const auto ok = gather(dataset, examples, batch);
  EXPECT_TRUE(ok) << ok.error().message;
  return batch;
}

}  // namespace clustar::bench::trainer
