#include "transport/verbs/eager_writer.h"

#include <fmt/format.h>

namespace clustar::transport::verbs {

Result<std::unique_ptr<EagerWriter>> EagerWriter::make(Nic& nic, const PortRegions& landing) {
  auto loop = nic.ports().front().loop(nic.context().settings, kEagerSlots);
  if (!loop) return tl::unexpected(loop.error());
  return std::unique_ptr<EagerWriter>(new EagerWriter(landing, std::move(*loop)));
}

Result<void> EagerWriter::write(std::uint32_t place, std::uint32_t group, std::size_t offset, std::size_t bytes,
                                const Regions& target, std::size_t to) {
  const auto posted =
      loop_.post_write(landing_.slice(0, offset, bytes), target.address(to), target.rkeys().front(), place);
  if (!posted) return tl::unexpected(posted.error());
  if (!*posted) return fail(ErrorCode::kInternal, fmt::format("verbs: eager place {} is written twice", place));
  groups_[place] = group;
  return {};
}

Result<void> EagerWriter::take(std::vector<Written>* done) {
  std::array<std::uint64_t, 16> places;
  const auto taken = loop_.poll(places);
  if (!taken) return tl::unexpected(taken.error());
  for (std::size_t i = 0; i < *taken; ++i) {
    const auto place = static_cast<std::uint32_t>(places[i]);
    done->push_back({place, groups_[place]});
  }
  return {};
}

}  // namespace clustar::transport::verbs
