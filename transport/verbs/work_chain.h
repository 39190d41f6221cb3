// The work requests of one posting, chained; the last one carries the immediate and asks for a completion.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

#include "transport/verbs/core/wire.h"

namespace clustar::transport::verbs {

class WorkChain {
 public:
  struct Target {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
  };

  // One or two pieces in a row; empty ones are left out.
  ibv_send_wr& add(ibv_wr_opcode opcode, const Target& target, const ibv_sge& first, const ibv_sge& second = {}) {
    ibv_send_wr& made = requests_[count_];
    auto& pieces = pieces_[count_];
    made = {};
    for (const ibv_sge& piece : {first, second}) {
      if (piece.length > 0) pieces[static_cast<std::size_t>(made.num_sge++)] = piece;
    }
    made.opcode = opcode;
    made.sg_list = pieces.data();
    made.wr.rdma.remote_addr = target.address;
    made.wr.rdma.rkey = target.key;
    if (count_ > 0) requests_[count_ - 1].next = &made;
    ++count_;
    return made;
  }
  void finish(std::uint64_t id, std::uint32_t immediate) {
    for (std::size_t i = 0; i < count_; ++i) requests_[i].wr_id = id;
    requests_[count_ - 1].imm_data = network_order(immediate);
    requests_[count_ - 1].send_flags |= IBV_SEND_SIGNALED;
  }
  ibv_send_wr& front() { return requests_.front(); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(count_); }

 private:
  std::array<ibv_send_wr, 3> requests_{};
  std::array<std::array<ibv_sge, 2>, 3> pieces_{};
  std::size_t count_ = 0;
};

}  // namespace clustar::transport::verbs
