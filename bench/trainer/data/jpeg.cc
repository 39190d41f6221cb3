#include "bench/trainer/data/jpeg.h"

#ifdef CLUSTAR_HAVE_JPEG

// libjpeg's header needs stdio's names before it.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <string>

namespace clustar::bench::trainer {
namespace {

constexpr int kMostScans = 100;  // of a progressive image: each may cost as much as all of its pixels

// libjpeg knows `info` alone, by whose client_data its calls back find the rest.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  char message[JMSG_LENGTH_MAX] = {};
};

// Leaves libjpeg, whose own way would be exit().
[[noreturn]] void give_up(j_common_ptr info) {
  auto& decoder = *static_cast<Decoder*>(info->client_data);
  decoder.errors.format_message(info, decoder.message);
  std::longjmp(decoder.failed, 1);
}

void warned(j_common_ptr info, int level) {
  if (level >= 0) return;  // a trace
  const int code = info->err->msg_code;
  if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
  give_up(info);
}

void watch_scans(j_common_ptr info) {
  auto& decoder = *static_cast<Decoder*>(info->client_data);
  if (decoder.info.input_scan_number <= kMostScans) return;
  std::snprintf(decoder.message, sizeof decoder.message, "more than %d scans", kMostScans);
  std::longjmp(decoder.failed, 1);
}

// Below: between setjmp and longjmp nothing lives that has a destructor, but for what the callers own.

bool read_header(Decoder& decoder, std::span<const std::uint8_t> bytes) {
  if (setjmp(decoder.failed) != 0) return false;
  jpeg_create_decompress(&decoder.info);
  decoder.info.progress = &decoder.progress;
  jpeg_mem_src(&decoder.info, bytes.data(), bytes.size());
  jpeg_read_header(&decoder.info, TRUE);
  return true;
}

// `square` has the room for its side. Rows outside of it are read, too: they may be damaged.
bool read_rows(Decoder& decoder, Square& square) {
  if (setjmp(decoder.failed) != 0) return false;
  jpeg_decompress_struct& info = decoder.info;
  info.out_color_space = JCS_RGB;
  info.dct_method = JDCT_ISLOW;  // the same bits by every instruction set
  jpeg_start_decompress(&info);
  const std::size_t left = (info.output_width - square.side) / 2;
  const std::size_t top = (info.output_height - square.side) / 2;
  const JSAMPARRAY row =
      info.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info), JPOOL_IMAGE, info.output_width * 3, 1);
  while (info.output_scanline < info.output_height) {
    const std::size_t y = info.output_scanline;
    jpeg_read_scanlines(&info, row, 1);
    if (y < top || y >= top + square.side) continue;
    std::copy_n(row[0] + left * 3, square.side * 3, square.pixels.data() + (y - top) * square.side * 3);
  }
  jpeg_finish_decompress(&info);
  return true;
}

std::string trouble_of(const jpeg_decompress_struct& info) {
  if (info.image_width > kMaxImageSide || info.image_height > kMaxImageSide ||
      std::size_t{info.image_width} * info.image_height > kMaxImagePixels) {
    return fmt::format("{} x {} are too many pixels; allowed: {} on a side, {} in all", info.image_width,
                       info.image_height, kMaxImageSide, kMaxImagePixels);
  }
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) {
    return "its colours are those of print (CMYK); allowed: RGB and grey";
  }
  return {};
}

}  // namespace

Result<Square> read_jpeg(std::span<const std::uint8_t> bytes) {
  Decoder decoder;
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = give_up;
  decoder.errors.emit_message = warned;
  decoder.progress.progress_monitor = watch_scans;
  decoder.info.client_data = &decoder;
  struct Destroy {
    jpeg_decompress_struct& info;
    ~Destroy() { jpeg_destroy_decompress(&info); }
  } const destroy{decoder.info};

  const auto failed = [&] { return fail(ErrorCode::kInvalidArgument, std::string("JPEG: ") + decoder.message); };
  if (!read_header(decoder, bytes)) return failed();
  if (const std::string wrong = trouble_of(decoder.info); !wrong.empty()) {
    return fail(ErrorCode::kInvalidArgument, "JPEG: " + wrong);
  }
  Square square{std::min(decoder.info.image_width, decoder.info.image_height), {}};
  square.pixels.resize(square.side * square.side * 3);
  if (!read_rows(decoder, square)) return failed();
  return square;
}

}  // namespace clustar::bench::trainer

#else

namespace clustar::bench::trainer {

Result<Square> read_jpeg(std::span<const std::uint8_t>) {
  return fail(ErrorCode::kUnavailable,
              "this build is without libjpeg; convert it to PPM, or install libjpeg-dev and configure with "
              "-DCLUSTAR_WITH_JPEG=ON");
}

}  // namespace clustar::bench::trainer

#endif
