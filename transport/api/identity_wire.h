// How a message's identity travels with it in transports that never lose: all but `known` and `local_number`, for which
// each has a bit. Big-endian.
//  0              8        14       16            24         28        30         31         32          33
// | communicator | number | sender | total_bytes | transfer | channel | function | datatype | algorithm | protocol |
#pragma once

#include <cstddef>
#include <span>

#include "transport/api/flow_tag.h"

namespace clustar::transport {

inline constexpr std::size_t kIdentityWireSize = 34;
// Fills in what is there. Any bytes are an identity.
void parse_identity(std::span<const std::byte, kIdentityWireSize> bytes, MessageIdentity& identity);
// The number is below MessageIdentity::kNumbers.
void serialize_identity(const MessageIdentity& identity, std::span<std::byte, kIdentityWireSize> bytes);

}  // namespace clustar::transport
