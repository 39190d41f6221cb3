#include "bench/doctor/glibc_need.h"

#include <elf.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace clustar::bench::doctor {
namespace {

// A file's bytes; what lies outside of it is nothing.
class Image {
 public:
  explicit Image(std::string bytes) : bytes_(std::move(bytes)) {}

  template <class T>
  std::optional<T> at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::string text(std::uint64_t offset) const {
    if (offset >= bytes_.size()) return {};
    return bytes_.substr(offset, bytes_.find('\0', offset) - offset);
  }

 private:
  std::string bytes_;
};

std::optional<Elf64_Shdr> section(const Image& image, const Elf64_Ehdr& header, std::uint64_t index) {
  return index < header.e_shnum ? image.at<Elf64_Shdr>(header.e_shoff + index * sizeof(Elf64_Shdr)) : std::nullopt;
}

// Versions in one section of needs; false: the file is cut off.
bool highest_of(const Image& image, const Elf64_Shdr& needs, std::uint64_t strings, GlibcVersion& highest) {
  std::uint64_t offset = needs.sh_offset;
  for (std::uint32_t file = 0; file < needs.sh_info; ++file) {
    const auto need = image.at<Elf64_Verneed>(offset);
    if (!need) return false;
    std::uint64_t at = offset + need->vn_aux;
    for (std::uint16_t i = 0; i < need->vn_cnt; ++i) {
      const auto version = image.at<Elf64_Vernaux>(at);
      if (!version) return false;
      const std::string name = image.text(strings + version->vna_name);
      if (name.starts_with("GLIBC_")) highest = std::max(highest, parse_glibc_version(name).value_or(GlibcVersion{}));
      if (version->vna_next == 0) break;
      at += version->vna_next;
    }
    if (need->vn_next == 0) break;
    offset += need->vn_next;
  }
  return true;
}

}  // namespace

std::string to_string(GlibcVersion version) { return fmt::format("{}.{}", version.major, version.minor); }

std::optional<GlibcVersion> parse_glibc_version(const std::string& text) {
  GlibcVersion version;
  const std::string numbers = text.starts_with("GLIBC_") ? text.substr(6) : text;
  if (std::sscanf(numbers.c_str(), "%d.%d", &version.major, &version.minor) != 2) return std::nullopt;
  return version;
}

Result<GlibcVersion> glibc_needed(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(ErrorCode::kUnavailable, fmt::format("{} cannot be read", path));
  const Image image(std::string(std::istreambuf_iterator<char>(in), {}));
  const auto header = image.at<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} is no 64 bit library", path));
  }
  GlibcVersion highest;
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto one = section(image, *header, i);
    if (one && one->sh_type != SHT_GNU_verneed) continue;
    const auto strings = one ? section(image, *header, one->sh_link) : std::nullopt;
    if (!strings || !highest_of(image, *one, strings->sh_offset, highest)) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{} is cut off: copy it again", path));
    }
  }
  return highest;
}

GlibcVersion glibc_here() { return parse_glibc_version(gnu_get_libc_version()).value_or(GlibcVersion{}); }

}  // namespace clustar::bench::doctor
