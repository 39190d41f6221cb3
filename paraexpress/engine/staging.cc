#include "paraexpress/engine/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

namespace clustar::paraexpress {
namespace {

constexpr std::size_t kLeast = 64 << 10, kPage = 4096;

}  // namespace

std::size_t Staging::rounded(std::size_t bytes) { return std::bit_ceil(std::max(bytes, kLeast)); }

Result<Staging::Block*> Staging::take(std::size_t bytes) {
  auto best = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    if ((*at)->bytes >= bytes && (best == free_.end() || (*at)->bytes < (*best)->bytes)) best = at;
  }
  if (best != free_.end()) {
    Block* const block = *best;
    free_.erase(best);
    return block;
  }
  auto block = std::make_unique<Block>();
  // Powers of two, so that operations of similar sizes share blocks.
  block->bytes = rounded(bytes);
  block->memory.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, block->bytes)));
  if (block->memory == nullptr) {
    return fail(ErrorCode::kSystem, fmt::format("no memory to stage {} bytes", block->bytes));
  }
  if (const auto ok = register_(*block); !ok) return tl::unexpected(ok.error());
  all_.push_back(std::move(block));
  return all_.back().get();
}

void Staging::give_back(Block* block) {
  free_.push_back(block);
  std::size_t kept = 0;
  for (const Block* one : free_) kept += one->bytes;
  while (kept > kMostKept) {
    Block* const oldest = free_.front();
    free_.erase(free_.begin());
    kept -= oldest->bytes;
    unregister_(*oldest);
    std::erase_if(all_, [oldest](const auto& one) { return one.get() == oldest; });
  }
}

}  // namespace clustar::paraexpress
