#include "paraexpress/torch/meeting.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace clustar::torch_backend {

paraexpress::AllGather meet_at(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                               std::chrono::milliseconds timeout) {
  const auto calls = std::make_shared<int>(0);
  return [=, store = std::move(store)](std::span<const std::byte> mine) -> Result<std::vector<std::byte>> {
    const auto key = [call = (*calls)++](int of) { return fmt::format("clustar/{}/{}", call, of); };
    std::vector<std::byte> all;
    int at = rank;
    try {
      const auto* const bytes = reinterpret_cast<const std::uint8_t*>(mine.data());
      store->set(key(rank), std::vector<std::uint8_t>(bytes, bytes + mine.size()));
      for (at = 0; at < size; ++at) {
        store->wait({key(at)}, timeout);
        const std::vector<std::uint8_t> theirs = store->get(key(at));
        if (theirs.size() != mine.size()) {
          return fail(ErrorCode::kInvalidUsage,
                      fmt::format("rank {} said {} bytes, rank {} {}: other versions of clustar, or an old store", at,
                                  theirs.size(), rank, mine.size()));
        }
        const auto* const begin = reinterpret_cast<const std::byte*>(theirs.data());
        all.insert(all.end(), begin, begin + theirs.size());
      }
    } catch (const std::exception& error) {
      return fail(ErrorCode::kRemote, fmt::format("rank {} did not come to the store: {}", at, error.what()));
    }
    return all;
  };
}

}  // namespace clustar::torch_backend
