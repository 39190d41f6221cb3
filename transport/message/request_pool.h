// The requests of one channel: as many as may be outstanding, made once. Used by the channel's caller only.
#pragma once

#include <cstdint>
#include <vector>

namespace clustar::transport {

// `R` has `channel` and `index`, which stay what they are made.
template <typename R>
class RequestPool {
 public:
  template <typename Channel>
  RequestPool(Channel* channel, std::uint32_t count) : requests_(count) {
    free_.reserve(count);
    for (std::uint32_t i = count; i-- > 0;) {
      requests_[i].channel = channel;
      requests_[i].index = i;
      free_.push_back(i);
    }
  }

  // False: all are outstanding.
  bool has_room() const { return !free_.empty(); }
  std::size_t outstanding() const { return requests_.size() - free_.size(); }
  // Only while there is room.
  R& take() {
    R& taken = requests_[free_.back()];
    free_.pop_back();
    return taken;
  }
  void give_back(const R& request) { free_.push_back(request.index); }

  R& operator[](std::size_t index) { return requests_[index]; }
  const R& operator[](std::size_t index) const { return requests_[index]; }
  auto begin() { return requests_.begin(); }
  auto end() { return requests_.end(); }
  auto begin() const { return requests_.begin(); }
  auto end() const { return requests_.end(); }

 private:
  std::vector<R> requests_;
  std::vector<std::uint32_t> free_;
};

}  // namespace clustar::transport
