#include "transport/api/shared_config.h"

#include <fmt/format.h>

#include "transport/base/bytes.h"

namespace clustar::transport {
namespace {

constexpr std::size_t kRankAt = sizeof(SharedDigests);
static_assert(kRankAt + sizeof(std::uint32_t) == SharedConfig::kSize);

std::string name_of(int rank, const std::string& address) { return rank >= 0 ? fmt::format("rank {}", rank) : address; }

}  // namespace

std::optional<SharedConfig> SharedConfig::parse(std::span<const std::byte, kSize> bytes) {
  SharedConfig config;
  const WireReader reader(bytes);
  config.rank = static_cast<std::int32_t>(reader.load<std::uint32_t, kRankAt>());
  if (config.rank < -1) return std::nullopt;
  for (std::size_t i = 0; i < config.digests.size(); ++i) {
    const auto digest = bytes.subspan(i * sizeof(std::uint32_t)).first<sizeof(std::uint32_t)>();
    config.digests[i] = WireReader(digest).load<std::uint32_t, 0>();
  }
  return config;
}

void SharedConfig::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const auto digest = bytes.subspan(i * sizeof(std::uint32_t)).first<sizeof(std::uint32_t)>();
    WireWriter(digest).store<0>(digests[i]);
  }
  writer.store<kRankAt>(static_cast<std::uint32_t>(rank));
}

std::optional<std::string> difference(const SharedConfig& here, const std::string& address_here,
                                      const SharedConfig& there, const std::string& address_there,
                                      std::span<const char* const> keys) {
  for (std::size_t i = 0; i < here.digests.size(); ++i) {
    if (here.digests[i] == there.digests[i]) continue;
    // More settings than we have: of another version of the plugin.
    const std::string key = i < keys.size() ? keys[i] : fmt::format("setting {} of another plugin version", i + 1);
    return fmt::format("{} is another on {} than on {}; set it alike on all ranks", key,
                       name_of(there.rank, address_there), name_of(here.rank, address_here));
  }
  return std::nullopt;
}

}  // namespace clustar::transport
