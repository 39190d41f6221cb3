// The send queue of one NIC: every transport takes its next bytes from here, so that a scheduler sees, and orders, all
// that waits. Pure: no socket, clock, thread; the owner locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/api/flow_tag.h"

namespace clustar::transport {

// Smaller rank goes first; equal ranks go in arrival order. Must be a function of its arguments and of the order's own
// state only; after that state changed, the owner calls SendQueue::reorder(). FlowTag::loss is nothing to order by: the
// queue does not keep it, and rank() sees none.
class SendOrder {
 public:
  virtual ~SendOrder() = default;
  virtual std::uint64_t rank(const FlowTag& flow, std::uint64_t remaining_bytes) const = 0;
};

class FifoOrder final : public SendOrder {
 public:
  std::uint64_t rank(const FlowTag&, std::uint64_t) const override { return 0; }
};

class SendQueue {
 public:
  using LaneId = std::uint32_t;  // a lane = one connection: what can be blocked as a whole

  struct Chunk {
    LaneId lane;
    std::uint64_t cookie;  // the owner's name for the message
    std::uint64_t offset;
    std::uint64_t length;  // 0 only for an empty message
    bool last;
    std::uint32_t item;  // for commit()
  };

  explicit SendQueue(std::unique_ptr<SendOrder> order);

  LaneId add_lane();
  // Forgets the lane and all that it queued. The id may be given out again.
  void remove_lane(LaneId lane);

  void push(LaneId lane, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes);

  // The next chunk, at most `max_chunk` (> 0) bytes, of the first message whose lane is not blocked. Nothing changes
  // until commit(); asking again gives the same answer.
  std::optional<Chunk> next(std::uint64_t max_chunk) const;
  // `chunk` is the answer of the latest next(): it was handed to the network.
  void commit(const Chunk& chunk);

  // A blocked lane is passed over: back-pressure of one connection never holds up the others.
  void block(LaneId lane);
  void unblock(LaneId lane);

  void set_order(std::unique_ptr<SendOrder> order);
  void reorder();

  std::size_t size() const { return size_; }
  std::uint64_t queued_bytes() const { return queued_bytes_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Item {
    LaneId lane = 0;
    std::uint8_t traffic_class = 0;
    std::uint64_t cookie = 0;
    std::uint64_t coflow = 0;
    std::uint64_t coflow_bytes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t sent = 0;
    std::uint64_t rank = 0;
    std::uint64_t arrival = 0;
    std::uint32_t prev = kNone;
    std::uint32_t next = kNone;

    FlowTag flow() const { return {traffic_class, coflow, coflow_bytes}; }
  };
  // Each lane keeps its items in sending order; ready_ is a heap of the lanes that are neither blocked nor empty, by
  // their first items, so thousands of connections cost a logarithm and the others nothing.
  struct Lane {
    bool used = false;
    bool blocked = false;
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    std::uint32_t ready_at = kNone;  // its place in the heap
  };

  bool goes_before(std::uint32_t a, std::uint32_t b) const;
  void link(std::uint32_t index);
  void unlink(std::uint32_t index);
  void erase(std::uint32_t index);
  void update_ready(LaneId lane);
  bool lane_before(LaneId a, LaneId b) const;
  void put(std::size_t place, LaneId lane);
  void sift_up(std::size_t place);
  void sift_down(std::size_t place);

  std::unique_ptr<SendOrder> order_;
  std::vector<Item> items_;  // slab
  std::vector<std::uint32_t> free_items_;
  std::vector<Lane> lanes_;
  std::vector<LaneId> ready_;  // heap: parent of i is (i - 1) / 2, children go after it
  std::uint64_t next_arrival_ = 0;
  std::size_t size_ = 0;
  std::uint64_t queued_bytes_ = 0;
};

}  // namespace clustar::transport
