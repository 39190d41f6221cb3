// A plugin's C API that says what a test has told it, as a library of its own: what looks for it opens a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace clustar::bench::trainer {

struct FakeLosses {
  static constexpr std::uint64_t kCommId = 42;
  static constexpr const char* kCommName = "train";

  struct Range {
    std::uint32_t transfer = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  struct Marks {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    std::size_t block_bytes = 0;
    std::vector<std::uint8_t> important;
  };

  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<Range>> missing;  // by sender and number of its send
  int answer = 0;  // of listMissingFrom, where it is not CLUSTAR_OK
  std::vector<Marks> marked;
  std::vector<const void*> forgotten;
};

}  // namespace clustar::bench::trainer

extern "C" clustar::bench::trainer::FakeLosses* fake_losses();
