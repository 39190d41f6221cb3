#pragma once

#include <cstdint>
#include <string>

namespace clustar::bench::trainer::graph::cuda {

enum class MathChoice : std::uint8_t { kAuto, kKernels, kLibraries };
const char* to_string(MathChoice choice);  // "auto", "kernels", "libraries"

inline constexpr const char* kNoLibrary = "none";  // as a name of cuDNN: do without

struct MathOptions {
  MathChoice choice = MathChoice::kAuto;
  std::string cublas{};  // the library's file; empty: where the loader finds it
  std::string cudnn{};

  bool operator==(const MathOptions&) const = default;
};

}  // namespace clustar::bench::trainer::graph::cuda
