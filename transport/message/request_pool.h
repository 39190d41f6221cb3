// The requests of one channel: made when so many are outstanding for the first time, up to a limit, and kept where they
// are until the channel's end. Most connections never have more than a few.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace clustar::transport {

// `R` has `channel` and `index`, which stay what they are made.
// Thread rule: the channel's caller takes and gives back, one call at a time. Any thread may call any_of() and
// for_each(), and operator[] with the index of a request that it was told of.
template <typename R>
class RequestPool {
 public:
  using Channel = decltype(R::channel);
  RequestPool(Channel channel, std::uint32_t most)
      : channel_(channel), most_(most), chunks_((most + kChunk - 1) / kChunk) {}
  ~RequestPool() {
    for (const std::atomic<Chunk*>& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
  }
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // False: all are outstanding.
  bool has_room() const { return !free_.empty() || made_ < most_; }
  std::size_t outstanding() const { return made_ - free_.size(); }
  // Only while there is room.
  R& take() {
    if (free_.empty()) return make();
    R& taken = (*this)[free_.back()];
    free_.pop_back();
    return taken;
  }
  void give_back(const R& request) { free_.push_back(request.index); }

  // Of one that was taken.
  R& operator[](std::size_t index) { return (*chunk(index))[index % kChunk]; }
  const R& operator[](std::size_t index) const { return (*chunk(index))[index % kChunk]; }
  // Of all that were made, outstanding or not, and some that were never taken.
  template <typename Test>
  bool any_of(Test test) const {
    bool found = false;
    for_each([&](const R& request) { found = found || test(request); });
    return found;
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const std::atomic<Chunk*>& slot : chunks_) {
      Chunk* const chunk = slot.load(std::memory_order_acquire);
      if (chunk == nullptr) return;
      for (R& request : *chunk) visit(request);
    }
  }

 private:
  static constexpr std::size_t kChunk = 8;
  using Chunk = std::array<R, kChunk>;

  Chunk* chunk(std::size_t index) const { return chunks_[index / kChunk].load(std::memory_order_acquire); }
  R& make() {
    if (made_ % kChunk == 0) {
      auto* const chunk = new Chunk();
      for (std::size_t i = 0; i < kChunk; ++i) {
        (*chunk)[i].channel = channel_;
        (*chunk)[i].index = static_cast<std::uint32_t>(made_ + i);
      }
      chunks_[made_ / kChunk].store(chunk, std::memory_order_release);
    }
    return (*this)[made_++];
  }

  const Channel channel_;
  const std::size_t most_;
  std::size_t made_ = 0;
  std::vector<std::atomic<Chunk*>> chunks_;  // filled from the front
  std::vector<std::uint32_t> free_;
};

}  // namespace clustar::transport
