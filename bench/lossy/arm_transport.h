// The transport of an arm at waist 1, and the terms under which its messages may lose bytes.
#pragma once

#include <memory>
#include <vector>

#include "bench/lossy/endpoint.h"
#include "transport/api/transport.h"
#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/registry.h"

namespace clustar::bench::lossy {

struct ArmTransport {
  transport::Selection selection;  // owns it
  // Of the packets' sockets: readable when something came. Filled by the first listen or connect; empty where the
  // transport does not tell.
  std::shared_ptr<std::vector<int>> readable;
};

// On eth0. `clock` outlives it. Errors: no usable interface; an unknown congestion control.
Result<ArmTransport> make_transport(const Terms& terms, const Clock& clock, const Log& log);

// Opts a connection in to losing what the arm tolerates.
transport::ChannelOptions channel_options(const Terms& terms);
// One collective per round: an all-to-all exchange seen from one receiver. Its rule allows p x S x n / E missing bytes
// of S over n ranks and E edges; S is all that the round brings to the receiver, and n = E, so it is p of that.
transport::FlowTag flow_tag(const Terms& terms, std::uint32_t round);

}  // namespace clustar::bench::lossy
