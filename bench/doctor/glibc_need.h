// Which glibc a library needs at least: by the versions of symbols in the file, so that it can be told where the
// library cannot be opened, too.
#pragma once

#include <optional>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::doctor {

struct GlibcVersion {
  int major = 0;
  int minor = 0;
  auto operator<=>(const GlibcVersion&) const = default;
};

std::string to_string(GlibcVersion version);                               // "2.35"
std::optional<GlibcVersion> parse_glibc_version(const std::string& text);  // of "2.35" or "GLIBC_2.2.5"

// The highest GLIBC_x.y that the file (ELF, 64 bit) asks for; 0.0 where it asks for none. Errors: it cannot be read, is
// no such file, or is cut off.
Result<GlibcVersion> glibc_needed(const std::string& path);

GlibcVersion glibc_here();

}  // namespace clustar::bench::doctor
