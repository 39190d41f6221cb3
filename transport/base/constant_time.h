// For secrets.
#pragma once

#include <cstddef>
#include <span>

namespace clustar {

// In a time that does not tell where they differ.
inline bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  unsigned differs = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differs |= std::to_integer<unsigned>(a[i] ^ b[i]);
  return differs == 0;
}

}  // namespace clustar
