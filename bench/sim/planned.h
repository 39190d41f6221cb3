// ParaExpress's operations over simulated hosts: the real program of each member, its messages as MLT's packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "bench/sim/testbed.h"
#include "paraexpress/core/program.h"

namespace clustar::bench::sim {

// All-reduces of one group of ranks, one after the other. Connections are made when they are first needed, and kept.
// Sums take no time here, and a send ends with its receive: half a round trip before its sender could know.
class Planned {
 public:
  // `host_of`: by rank. It sets the testbed's handler.
  Planned(Testbed& bed, std::vector<std::uint32_t> host_of);

  // From the first message to the last sum and result of all ranks; nothing: not within the limit. `chunk`: the most
  // bytes of a message (> 0).
  std::optional<Duration> all_reduce(const clustar::paraexpress::Forest& forest, std::uint64_t bytes,
                                     std::uint64_t chunk, Duration limit);

 private:
  struct Link {
    std::deque<bool> ended;    // of those that are posted, first to last: messages may overtake each other
    std::uint32_t passed = 0;  // before these
  };
  struct Rank {
    clustar::paraexpress::Program program;
    std::vector<Link> links{};
  };

  std::uint32_t lane(std::uint32_t from, std::uint32_t to);
  std::size_t link_of(std::uint32_t rank, std::uint32_t peer, bool sends, bool up) const;
  void go_on(std::uint32_t rank);
  bool post(std::uint32_t rank, std::size_t link);
  void end(std::uint32_t rank, std::size_t link, std::uint32_t number);
  void on_done(const Done& done);

  Testbed& bed_;
  const std::vector<std::uint32_t> host_of_;
  std::vector<std::uint32_t> lanes_;                           // by sender and receiver
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ends_;  // by lane: the ranks
  std::vector<Rank> ranks_;
};

}  // namespace clustar::bench::sim
