// A binary heap of small numbers that knows where each of them is, so that one whose place changed moves in a
// logarithm.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace clustar {

// The order is the caller's, handed to each call that compares: `before(a, b)`: a belongs nearer to the top.
class IndexedHeap {
 public:
  bool empty() const { return heap_.empty(); }
  std::uint32_t top() const { return heap_.front(); }
  bool contains(std::uint32_t id) const { return id < place_.size() && place_[id] != kNone; }

  // Puts it in, or where it belongs now.
  template <class Before>
  void update(std::uint32_t id, Before before) {
    if (id >= place_.size()) place_.resize(id + 1, kNone);
    if (place_[id] == kNone) {
      place_[id] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back(id);
    }
    sift_up(place_[id], before);
    sift_down(place_[id], before);
  }

  // Nothing if it is not there. What it is ordered by need not be valid any more.
  template <class Before>
  void remove(std::uint32_t id, Before before) {
    if (!contains(id)) return;
    const std::size_t hole = place_[id];
    place_[id] = kNone;
    const std::uint32_t moved = heap_.back();
    heap_.pop_back();
    if (moved == id) return;
    put(hole, moved);
    sift_up(hole, before);
    sift_down(place_[moved], before);
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  void put(std::size_t place, std::uint32_t id) {
    heap_[place] = id;
    place_[id] = static_cast<std::uint32_t>(place);
  }

  template <class Before>
  void sift_up(std::size_t place, Before before) {
    const std::uint32_t id = heap_[place];
    for (; place > 0 && before(id, heap_[(place - 1) / 2]); place = (place - 1) / 2) put(place, heap_[(place - 1) / 2]);
    put(place, id);
  }

  template <class Before>
  void sift_down(std::size_t place, Before before) {
    const std::uint32_t id = heap_[place];
    for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], id)) break;
      put(place, heap_[child]);
      place = child;
    }
    put(place, id);
  }

  std::vector<std::uint32_t> heap_;   // parent of i is (i - 1) / 2
  std::vector<std::uint32_t> place_;  // by id
};

}  // namespace clustar
