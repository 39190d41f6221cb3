// What one member does in one operation, chunk by chunk: which messages it may send and receive, what it adds up when.
//
// Each shard is cut into chunks, and a chunk of a shard is a cell. In a cell sums flow up the shard's tree and the
// result flows down, or onward; some collectives have one of the two ways only. Between two members there are up to
// four links: up and down, to send and to receive. On a link messages go in one order that both ends know: by chunk,
// then by how high (up) or how far from the root (down) the receiver is, then by shard. The first cell in that order
// that is not done never waits for one behind it, so no window of receives, however short, can deadlock: a ring's links
// get their messages in the ring's order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "paraexpress/core/collective.h"
#include "paraexpress/core/forest.h"

namespace clustar::paraexpress {

// A forest as one member sees it.
struct Seat {
  struct InShard {
    Role role{};
    std::uint32_t height = 0;         // of this member
    std::uint32_t parent_height = 0;  // 0 at the root
    std::uint32_t depth = 0;          // of the result's way: the root's is 0
  };
  Member member = kNobody;
  std::vector<InShard> shards{};
};
Seat seat_of(const Forest& forest, Member member);

class Program {
 public:
  struct Link {
    Member peer = kNobody;
    bool sends = false;
    bool up = false;  // a partial sum on its way to the root; otherwise a result
    std::uint64_t elements = 0;
  };
  struct Message {
    ElementRange range{};
    // Of a partial sum that is to be received: which place of its link it lands in, below `window`.
    std::uint32_t place = 0;
  };
  struct Sum {
    struct Input {
      std::size_t link = 0;  // kOwn: this member's own elements
      std::uint32_t place = 0;
    };
    static constexpr std::size_t kOwn = ~std::size_t{0};
    ElementRange range{};
    std::vector<Input> inputs{};  // in the order in which they are added
  };

  // `ranges`: element_ranges(). `chunk`: the most elements of a message (> 0). `window`: places of each link for
  // partial sums that came and are not added yet (> 0).
  Program(const Seat& seat, Collective collective, const std::vector<ElementRange>& ranges, std::uint64_t chunk,
          std::uint32_t window);

  std::size_t links() const { return links_.size(); }
  const Link& link(std::size_t link) const { return links_[link].facts; }
  // Its next message, if it may be posted now; then call posted(). Messages of a link end in the order of their
  // posting.
  std::optional<Message> next(std::size_t link) const;
  void posted(std::size_t link);
  void ended(std::size_t link);
  // Posted and not ended.
  std::uint32_t under_way(std::size_t link) const { return links_[link].posted - links_[link].ended; }

  std::uint32_t posted_messages(std::size_t link) const { return links_[link].posted; }
  // Some of its messages have not ended.
  bool open(std::size_t link) const { return links_[link].ended < links_[link].cells.size(); }
  // The peer is gone, a root to whom this member is a leaf: its messages are left out.
  void abandon(Member peer);

  // What is ready to be added up, into the member's own elements; call summed() before asking again.
  std::optional<Sum> next_sum() const;
  void summed();

  bool done() const { return left_ == 0; }

 private:
  struct Cell {
    ElementRange range{};
    std::uint32_t shard = 0;
    std::uint32_t missing = 0;  // children's sums
    bool summed = false;
    bool passed_up = false;  // or there is nobody above
    bool result = false;
  };
  struct LinkState {
    Link facts{};
    std::vector<std::uint32_t> cells{};
    std::uint32_t posted = 0, ended = 0;
  };
  std::size_t link_to(Member peer, bool sends, bool up);

  const std::uint32_t window_;
  std::vector<std::vector<Member>> addends_;  // by shard
  std::vector<Cell> cells_;
  std::vector<LinkState> links_;
  std::vector<std::uint32_t> ready_;   // cells to be summed
  std::vector<std::uint32_t> places_;  // by cell and addend: where it lies; kept flat, first_place_ says from where
  std::vector<std::uint32_t> first_place_;
  Member member_;
  std::uint64_t left_ = 0;  // messages and sums
};

}  // namespace clustar::paraexpress
