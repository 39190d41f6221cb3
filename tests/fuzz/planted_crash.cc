// A target that one input crashes: replay_test.py checks by it that replaying finds such an input and names it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr char kPlanted[] = "planted";
  if (size == std::strlen(kPlanted) && std::memcmp(data, kPlanted, size) == 0) std::abort();
  return 0;
}
