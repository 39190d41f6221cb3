#include "transport/io/verbs/uc/granted.h"

#include <algorithm>

namespace clustar::transport::io::verbs::uc {

bool Granted::on_grant(const Grant& grant) {
  const auto found = by_slot_.find(grant.slot);
  if (found == by_slot_.end()) {
    if (by_slot_.size() == kMost) by_slot_.erase(order_.pop_front());
    order_.push_back(grant.slot);
  } else if (static_cast<std::int32_t>(grant.id - found->second.grant.id) <= 0) {
    return false;
  }
  Entry& entry = by_slot_[grant.slot];
  entry.grant = grant;
  entry.revoked = false;
  entry.written.assign((grant.segments() + 63) / 64, 0);
  return true;
}

void Granted::on_revoke(std::uint32_t id) {
  const auto found = std::ranges::find_if(by_slot_, [id](const auto& each) { return each.second.grant.id == id; });
  if (found == by_slot_.end()) return;
  found->second.revoked = true;
  found->second.written = {};
}

void Granted::clear() {
  by_slot_.clear();
  while (!order_.empty()) order_.pop_front();
}

std::uint32_t Granted::id_of(std::uint64_t slot) const {
  const auto found = by_slot_.find(slot);
  return found != by_slot_.end() ? found->second.grant.id : 0;
}

bool Granted::can_take(const Destination& at, std::size_t length) const {
  const auto found = by_slot_.find(at.slot);
  if (found == by_slot_.end() || found->second.revoked || length == 0) return false;
  const Grant& grant = found->second.grant;
  if (at.segment_bytes != grant.segment_bytes || at.segment >= grant.segments()) return false;
  const std::uint32_t offset = at.segment * grant.segment_bytes;
  if (length > std::min(grant.segment_bytes, grant.length - offset)) return false;
  return (found->second.written[at.segment / 64] >> at.segment % 64 & 1) == 0;
}

std::optional<Granted::Target> Granted::take(const Destination& at, std::size_t length) {
  if (!can_take(at, length)) return std::nullopt;
  Entry& entry = by_slot_[at.slot];
  entry.written[at.segment / 64] |= std::uint64_t{1} << at.segment % 64;
  return Target{entry.grant.id, entry.grant.rkey, entry.grant.address + at.segment * entry.grant.segment_bytes};
}

}  // namespace clustar::transport::io::verbs::uc
