#include "libfabric_shim/provider/core/matcher.h"

namespace clustar::libfabric_shim::provider {
namespace {

bool fits(const Matcher::Receive& receive, const Matcher::Message& message) {
  const bool from = receive.source == kAnySource || receive.source == message.source;
  return from && ((receive.tag ^ message.tag) & ~receive.ignore) == 0;
}

}  // namespace

std::optional<std::uint64_t> Matcher::post(const Receive& receive) {
  auto message = claim(receive);
  if (!message) receives_.push(receive);
  return message;
}

std::optional<std::uint64_t> Matcher::arrive(const Message& message) {
  const auto taken = receives_.take([&](const Receive& receive) { return fits(receive, message); });
  if (taken) return taken->id;
  messages_.push(message);
  held_ += message.bytes + kOverhead;
  return std::nullopt;
}

std::optional<std::uint64_t> Matcher::peek(const Receive& receive) const {
  const Message* found = messages_.find([&](const Message& message) { return fits(receive, message); });
  if (found == nullptr) return std::nullopt;
  return found->id;
}

std::optional<std::uint64_t> Matcher::claim(const Receive& receive) {
  const auto taken = messages_.take([&](const Message& message) { return fits(receive, message); });
  if (!taken) return std::nullopt;
  held_ -= taken->bytes + kOverhead;
  return taken->id;
}

bool Matcher::cancel(std::uint64_t receive) {
  return receives_.take([&](const Receive& waiting) { return waiting.id == receive; }).has_value();
}

}  // namespace clustar::libfabric_shim::provider
