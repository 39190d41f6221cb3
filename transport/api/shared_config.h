// What both ends of a channel must have alike of their configuration (ChannelOptions::config), compared before the
// first byte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "transport/api/transport.h"
#include "transport/base/shared_digest.h"

namespace clustar::transport {

// What a listener says of itself in its handle.
//  0                  32     36
// | digest (8 x 4) | rank |   big-endian; rank 0xffffffff = unknown
struct SharedConfig {
  static constexpr std::size_t kSize = 36;
  SharedDigest digest{};
  int rank = -1;                         // -1 = unknown
  std::span<const std::string> names{};  // of the settings; does not travel

  static SharedConfig of(const ChannelOptions& options) {
    return {options.config, std::max(options.rank, -1), options.config_names};
  }
  // Nothing for a negative rank other than -1.
  static std::optional<SharedConfig> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
  // As far as it travels.
  bool operator==(const SharedConfig& other) const { return digest == other.digest && rank == other.rank; }
};

// "<setting> is another on rank <there> than on rank <here>; <what to do>"; a rank that is not known is named by its
// address. Where several differ, all are named, or that they are too many. Nothing: none differs.
std::optional<std::string> difference(const SharedConfig& here, const std::string& address_here,
                                      const SharedConfig& there, const std::string& address_there);

}  // namespace clustar::transport
