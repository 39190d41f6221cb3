// The core's options for a device, by what its link is.
#pragma once

#include <cstdint>

#include "mlt/core/endpoint.h"
#include "mlt/core/options.h"
#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace clustar::mlt::driver {

// Payload of a full packet: a multiple of 8 B. `seal_bytes`: what is added to each packet's header; 0 = nothing.
// Error: packets too small for this protocol.
Result<std::uint16_t> segment_for(const transport::io::Capabilities& capabilities, std::size_t seal_bytes);
// Options::credit_slack for a line of so many bytes/s: what it carries between two turns of the receiver's process, so
// that senders can fill that time. More would only wait in a switch, which may have less room.
std::uint32_t credit_slack_for(std::uint64_t line_rate);
// Of a connection whose packets and answers take `round_trip` without queues, as far as is known; 0 = unknown. The
// connection follows what it measures; this is what it begins with.
void set_path(Options& options, Duration round_trip, Endpoint::End end);
// Error: packets too small for this protocol.
Result<Options> options_for(const transport::io::Capabilities& capabilities, const transport::io::LinkProfile& link,
                            std::size_t seal_bytes);

}  // namespace clustar::mlt::driver
