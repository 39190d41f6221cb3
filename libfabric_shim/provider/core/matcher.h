// Matches receives with messages as libfabric says: a receive takes the oldest message that fits, a message the oldest
// receive that fits, whatever came before it and does not fit. Messages of one source are told in the order in which
// they were sent (FI_ORDER_SAS), so they are matched in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace clustar::libfabric_shim::provider {

using Source = std::uint32_t;
inline constexpr Source kAnySource = 0xffffffff;

// In order of arrival; what leaves from the middle is only marked until that is half of it.
template <class T>
class Waiting {
 public:
  void push(const T& value) { items_.push_back({value, true}), ++live_; }
  std::size_t size() const { return live_; }
  // The oldest for which `fits`; null: none. Valid until the next change.
  template <class Fits>
  const T* find(Fits fits) const {
    for (std::size_t i = head_; i < items_.size(); ++i) {
      if (items_[i].alive && fits(items_[i].value)) return &items_[i].value;
    }
    return nullptr;
  }
  template <class Fits>
  std::optional<T> take(Fits fits) {
    for (std::size_t i = head_; i < items_.size(); ++i) {
      if (!items_[i].alive || !fits(items_[i].value)) continue;
      const T taken = items_[i].value;
      items_[i].alive = false;
      --live_;
      tidy();
      return taken;
    }
    return std::nullopt;
  }

 private:
  struct Item {
    T value;
    bool alive;
  };
  void tidy() {
    while (head_ < items_.size() && !items_[head_].alive) ++head_;
    if (items_.size() < 2 * live_ + 16) return;
    std::size_t kept = 0;
    for (std::size_t i = head_; i < items_.size(); ++i) {
      if (items_[i].alive) items_[kept++] = items_[i];
    }
    items_.resize(kept);
    head_ = 0;
  }

  std::vector<Item> items_;
  std::size_t head_ = 0;
  std::size_t live_ = 0;
};

class Matcher {
 public:
  struct Receive {
    std::uint64_t id;  // the caller's, unique among receives
    Source source = kAnySource;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0;  // bits of the tag that may differ
  };
  struct Message {
    std::uint64_t id;  // the caller's, unique among messages
    Source source;
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;  // of memory that it holds while it waits
  };

  // The message that it takes at once; otherwise the receive waits.
  std::optional<std::uint64_t> post(const Receive& receive);
  // The receive that takes it at once; otherwise the message waits: it is unexpected.
  std::optional<std::uint64_t> arrive(const Message& message);
  // The message that such a receive would take: it stays (FI_PEEK), or is taken out (FI_CLAIM).
  std::optional<std::uint64_t> peek(const Receive& receive) const;
  std::optional<std::uint64_t> claim(const Receive& receive);
  // False: no such receive waits.
  bool cancel(std::uint64_t receive);

  std::size_t receives() const { return receives_.size(); }
  std::size_t unexpected() const { return messages_.size(); }
  // What unexpected messages hold, each with kOverhead: no more are to be taken from the network beyond a bound.
  std::uint64_t held_bytes() const { return held_; }
  static constexpr std::uint64_t kOverhead = 128;

 private:
  Waiting<Receive> receives_;
  Waiting<Message> messages_;
  std::uint64_t held_ = 0;
};

}  // namespace clustar::libfabric_shim::provider
