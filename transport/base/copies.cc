#include "transport/base/copies.h"

namespace clustar {

std::array<CopyCounter, kCopyKinds> g_copied;

namespace {

constexpr std::array<const char*, kCopyKinds> kNames = {
    "send buffer", "eager", "early", "placed", "staged", "mispredicted", "retransmitted",
};

}  // namespace

std::uint64_t copied_bytes(Copy why) {
  return g_copied[static_cast<std::size_t>(why)].bytes.load(std::memory_order_relaxed);
}

std::uint64_t copied_bytes() {
  std::uint64_t sum = 0;
  for (const CopyCounter& counter : g_copied) sum += counter.bytes.load(std::memory_order_relaxed);
  return sum;
}

std::string describe_copies() {
  std::uint64_t sum = 0;
  std::string kinds;
  for (std::size_t i = 0; i < kCopyKinds; ++i) {
    const std::uint64_t bytes = g_copied[i].bytes.load(std::memory_order_relaxed);
    if (bytes == 0) continue;
    sum += bytes;
    kinds += (kinds.empty() ? "" : ", ") + std::string(kNames[i]) + " " + std::to_string(bytes);
  }
  return std::to_string(sum) + " bytes copied" + (kinds.empty() ? "" : " (" + kinds + ")");
}

}  // namespace clustar
