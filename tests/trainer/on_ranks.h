// Ranks of a collective as threads of this process.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer::tests {

// The errors by rank; "" where there was none.
inline std::vector<std::string> on_ranks(int ranks, const std::function<Result<void>(int rank)>& work) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      if (const auto ok = work(rank); !ok) errors[static_cast<std::size_t>(rank)] = ok.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace clustar::bench::trainer::tests
