#pragma once

#include <cstdint>

namespace clustar::mlt {

inline constexpr std::uint32_t kMillion = 1'000'000;  // shares are counted in parts per million

}  // namespace clustar::mlt
