// A digest of what all ranks need alike, by which two of them find out which setting differs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace clustar {

// Power sums of the settings' values, each at a point of its own (its name), in the field of the integers modulo
// 4,294,967,291: the syndromes of a Reed-Solomon code. So its size does not depend on how many there are, equal
// settings give equal digests, and the difference of two digests tells up to kNamed settings apart without either list.
struct SharedDigest {
  static constexpr std::size_t kWords = 8;
  static constexpr std::size_t kNamed = 3;

  std::array<std::uint32_t, kWords> words{};

  // In any order; a setting with the empty text counts as none.
  void add(const std::string& name, const std::string& value);
  bool operator==(const SharedDigest&) const = default;
};

// Of two digests that are not equal, which of `names` differ; empty: more than kNamed of them, or one that is not among
// them (of another version).
std::vector<std::string> differing(const SharedDigest& here, const SharedDigest& there,
                                   std::span<const std::string> names);

}  // namespace clustar
