#include "transport/api/shared_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "transport/base/bytes.h"

namespace clustar::transport {
namespace {

constexpr std::size_t kRankAt = sizeof(SharedDigest::words);
static_assert(kRankAt + sizeof(std::uint32_t) == SharedConfig::kSize);

std::string name_of(int rank, const std::string& address) { return rank >= 0 ? fmt::format("rank {}", rank) : address; }

}  // namespace

std::optional<SharedConfig> SharedConfig::parse(std::span<const std::byte, kSize> bytes) {
  SharedConfig config;
  const WireReader reader(bytes);
  config.rank = static_cast<std::int32_t>(reader.load<std::uint32_t, kRankAt>());
  if (config.rank < -1) return std::nullopt;
  for (std::size_t i = 0; i < config.digest.words.size(); ++i) {
    const auto word = bytes.subspan(i * sizeof(std::uint32_t)).first<sizeof(std::uint32_t)>();
    config.digest.words[i] = WireReader(word).load<std::uint32_t, 0>();
  }
  return config;
}

void SharedConfig::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  for (std::size_t i = 0; i < digest.words.size(); ++i) {
    const auto word = bytes.subspan(i * sizeof(std::uint32_t)).first<sizeof(std::uint32_t)>();
    WireWriter(word).store<0>(digest.words[i]);
  }
  writer.store<kRankAt>(static_cast<std::uint32_t>(rank));
}

std::optional<std::string> difference(const SharedConfig& here, const std::string& address_here,
                                      const SharedConfig& there, const std::string& address_there) {
  if (here.digest == there.digest) return std::nullopt;
  const std::vector<std::string> named = differing(here.digest, there.digest, here.names);
  const std::string what =
      named.empty() ? fmt::format("more than {} settings, or some of another plugin version, are", SharedDigest::kNamed)
                    : fmt::format("{} {}", fmt::join(named, ", "), named.size() == 1 ? "is" : "are");
  return fmt::format("{} another on {} than on {}; set {} alike on all ranks", what, name_of(there.rank, address_there),
                     name_of(here.rank, address_here), named.size() == 1 ? "it" : "them");
}

}  // namespace clustar::transport
