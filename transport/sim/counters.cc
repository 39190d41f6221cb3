#include "transport/sim/counters.h"

#include <cstring>

namespace clustar::transport::sim {

void Digest::add(std::span<const std::byte> bytes) {
  add(bytes.size());
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    add(word);
    bytes = bytes.subspan(8);
  }
  std::uint64_t rest = 0;
  for (const std::byte b : bytes) rest = rest << 8 | static_cast<std::uint64_t>(b);
  add(rest);
}

}  // namespace clustar::transport::sim
