// What a sender has given to one queue pair and what is not acknowledged yet, in order. Reliable connections deliver in
// order, so the peer's count of immediates tells exactly what arrived before a queue pair failed: that is done, the
// rest is sent again by another, and nothing is ever written twice. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/ring.h"
#include "transport/verbs/core/wire.h"

namespace clustar::transport::verbs {

// One or several work requests of which the last carries an immediate and asks for a completion.
struct Posting {
  Immediate::Kind kind = Immediate::Kind::kStripe;
  std::uint32_t cookie = 0;  // the message's; of kConsumed 0
  std::uint32_t stripe = 0;
  std::uint32_t requests = 1;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

class PostedQueue {
 public:
  // Its number, for the completion.
  std::uint32_t push(const Posting& posting) {
    queue_.push_back(posting);
    requests_ += posting.requests;
    bytes_ += posting.length;
    return next_++;
  }
  // Takes the oldest if its number is at most `number`; all of them are acknowledged.
  bool acknowledged(std::uint32_t number, Posting* out) {
    if (queue_.empty() || static_cast<std::int32_t>(number - first()) < 0) return false;
    *out = take();
    return true;
  }
  // After a failure: `arrived` immediates came since the beginning. Takes all. `exact`: the peer looked for all of
  // them; otherwise it counts what it had taken, and more may be acknowledged. False: so many were never posted, or an
  // exact count is less than what was acknowledged.
  bool drain(std::uint32_t arrived, bool exact, std::vector<Posting>* delivered, std::vector<Posting>* lost) {
    if (!exact && static_cast<std::int32_t>(arrived - first()) < 0) arrived = first();
    if (arrived - first() > queue_.size()) return false;
    while (!queue_.empty()) {
      const bool came = first() != arrived && lost->empty();
      (came ? delivered : lost)->push_back(take());
    }
    return true;
  }

  std::uint32_t latest() const { return next_ - 1; }          // number of the latest that was pushed
  std::uint32_t acknowledged() const { return first() - 1; }  // of the latest that is not in it any more
  std::uint32_t requests() const { return requests_; }        // outstanding
  std::uint64_t bytes() const { return bytes_; }
  bool empty() const { return queue_.empty(); }

 private:
  std::uint32_t first() const { return next_ - static_cast<std::uint32_t>(queue_.size()); }
  Posting take() {
    const Posting oldest = queue_.pop_front();
    requests_ -= oldest.requests;
    bytes_ -= oldest.length;
    return oldest;
  }

  Ring<Posting> queue_;
  std::uint32_t next_ = 0;
  std::uint32_t requests_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace clustar::transport::verbs
