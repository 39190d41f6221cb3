#include "bench/trainer/data/pnm.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace clustar::bench::trainer {
namespace {

struct Header {
  std::size_t channels = 0;  // in the file
  std::size_t columns = 0;
  std::size_t rows = 0;
  std::size_t highest = 0;
  std::size_t bytes = 0;  // of the header itself
};

bool is_space(std::uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(std::uint8_t c) { return c >= '0' && c <= '9'; }

tl::unexpected<Error> malformed(std::size_t at, const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("at byte {}: {}", at, what));
}

// White space and comments; at least one of them.
bool skip_space(std::span<const std::uint8_t> bytes, std::size_t& at) {
  const std::size_t start = at;
  while (at < bytes.size() && (is_space(bytes[at]) || bytes[at] == '#')) {
    if (bytes[at] == '#') {
      while (at < bytes.size() && bytes[at] != '\n') ++at;
    } else {
      ++at;
    }
  }
  return at > start;
}

Result<std::size_t> number(std::span<const std::uint8_t> bytes, std::size_t& at, const char* name, std::size_t most) {
  const bool apart = skip_space(bytes, at);
  const std::size_t start = at;
  std::size_t value = 0;
  while (at < bytes.size() && is_digit(bytes[at]) && value <= most) value = value * 10 + (bytes[at++] - '0');
  if (apart && at > start && value >= 1 && value <= most) return value;
  return malformed(start, fmt::format("expected the {}, a number from 1 to {}", name, most));
}

Result<Header> read_header(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < 2 || bytes[0] != 'P' || (bytes[1] != '5' && bytes[1] != '6')) {
    return malformed(0, "expected P5 or P6");
  }
  Header header;
  header.channels = bytes[1] == '6' ? 3 : 1;
  std::size_t at = 2;
  const auto columns = number(bytes, at, "columns", kMaxImageSide);
  if (!columns) return tl::unexpected(columns.error());
  const auto rows = number(bytes, at, "rows", kMaxImageSide);
  if (!rows) return tl::unexpected(rows.error());
  const auto highest = number(bytes, at, "highest value", 255);
  if (!highest) return tl::unexpected(highest.error());
  if (*columns * *rows > kMaxImagePixels) {
    return malformed(at, fmt::format("{} x {} are too many pixels; allowed: {}", *columns, *rows, kMaxImagePixels));
  }
  if (at == bytes.size() || !is_space(bytes[at])) return malformed(at, "expected white space before the pixels");
  header.columns = *columns;
  header.rows = *rows;
  header.highest = *highest;
  header.bytes = at + 1;
  return header;
}

}  // namespace

Result<Square> read_pnm(std::span<const std::uint8_t> bytes) {
  const auto header = read_header(bytes);
  if (!header) return tl::unexpected(header.error());
  const auto& [channels, columns, rows, most, header_bytes] = *header;
  const std::size_t highest = most;
  const std::span<const std::uint8_t> values = bytes.subspan(header_bytes);
  if (values.size() != columns * rows * channels) {
    return malformed(bytes.size(), fmt::format("{} bytes of pixels; {} x {} x {} have {}", values.size(), columns, rows,
                                               channels, columns * rows * channels));
  }
  const auto above = std::find_if(values.begin(), values.end(), [&](std::uint8_t value) { return value > highest; });
  if (above != values.end()) {
    return malformed(header_bytes + static_cast<std::size_t>(above - values.begin()),
                     fmt::format("a value of {}, above the highest, {}", *above, highest));
  }
  Square square{std::min(columns, rows), {}};
  const std::size_t left = (columns - square.side) / 2;
  const std::size_t top = (rows - square.side) / 2;
  square.pixels.reserve(square.side * square.side * 3);
  for (std::size_t y = top; y < top + square.side; ++y) {
    for (std::size_t x = left; x < left + square.side; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        const std::size_t value = values[(y * columns + x) * channels + std::min(c, channels - 1)];
        square.pixels.push_back(static_cast<std::uint8_t>((value * 255 + highest / 2) / highest));
      }
    }
  }
  return square;
}

}  // namespace clustar::bench::trainer
