#include "nccl_plugin/api/reception_book.h"

#include <algorithm>

#include "nccl_plugin/loss/phase.h"
#include "nccl_plugin/net/message_flow.h"

namespace clustar::nccl_plugin {
namespace {

CollectiveKey key_of(const transport::MessageIdentity& identity) {
  return {identity.communicator, identity.number, identity.function, identity.local_number, identity.sender};
}

std::size_t set_of(const CollectiveKey& key) {
  transport::MessageIdentity identity;
  identity.known = true;
  identity.communicator = key.communicator;
  // Sends of many ranks have one number.
  identity.number = key.number + (std::uint64_t{key.peer} << 48);
  identity.function = key.function;
  identity.local_number = key.local_number;
  return static_cast<std::size_t>(coflow_of(identity) % ReceptionBook::kSets) * ReceptionBook::kWays;
}

}  // namespace

ReceptionBook::Record& ReceptionBook::record_of(const CollectiveKey& key, const transport::MessageIdentity& identity) {
  const std::size_t first = set_of(key);
  Record* oldest = &records_[first];
  for (std::size_t i = first; i < first + kWays; ++i) {
    Record& record = records_[i];
    if (record.serial != 0 && record.key == key) return record;
    if (record.serial < oldest->serial) oldest = &record;
  }
  *oldest = Record{key, ++serial_, 0, {}};
  oldest->reception.identity = identity;
  return *oldest;
}

const ReceptionBook::Record* ReceptionBook::lookup(const CollectiveKey& key) const {
  const std::size_t first = set_of(key);
  for (std::size_t i = first; i < first + kWays; ++i) {
    if (records_[i].serial != 0 && records_[i].key == key) return &records_[i];
  }
  return nullptr;
}

void ReceptionBook::add_hole(Record& record, const transport::ReceivedMessage& message,
                             const transport::MissingRange& range) {
  const std::uint32_t t = message.identity.transfer;
  const std::uint32_t per_loop = transfers_per_loop(record.key.function, message.loss.ranks);
  Hole hole{};
  hole.channel = message.identity.channel;
  const bool send = record.key.peer != transport::MessageIdentity::kNoRank;
  hole.loop = per_loop == 0 ? 0 : t / per_loop;
  hole.stage = message.loss.stage;
  hole.slice = send ? t : t % kRingSlices;
  hole.offset = range.offset;
  hole.bytes = range.length;
  if (record.reception.missing_ranges == 0) record.first_hole = holes_seen_;
  holes_[holes_seen_++ % kHoles] = {record.serial, hole};
  ++record.reception.missing_ranges;
}

void ReceptionBook::add(const transport::Progress& progress) {
  const std::lock_guard lock(mutex_);
  for (std::size_t part = 0; part < progress.messages.size(); ++part) {
    const transport::ReceivedMessage& message = progress.messages[part];
    Record* record = message.identity.known ? &record_of(key_of(message.identity), message.identity) : nullptr;
    add_part(message, record, static_cast<std::uint32_t>(part), part < progress.sizes.size() ? progress.sizes[part] : 0,
             progress.missing);
  }
}

void ReceptionBook::add_sent(const transport::Progress& progress) {
  const transport::FlowTag& sent = *progress.sent;
  CollectiveKey key = key_of(sent.identity);
  key.peer = sent.receiver;
  const std::lock_guard lock(mutex_);
  add_part({sent.identity, sent.loss}, &record_of(key, sent.identity), 0,
           progress.sizes.empty() ? 0 : progress.sizes[0], progress.missing);
}

// `record`: null where the message is not known.
void ReceptionBook::add_part(const transport::ReceivedMessage& message, Record* record, std::uint32_t part,
                             std::uint64_t size, std::span<const transport::MissingRange> ranges) {
  std::uint64_t missing = 0;
  for (const transport::MissingRange& range : ranges) {
    if (range.part != part) continue;
    missing += range.length;
    if (record != nullptr) add_hole(*record, message, range);
  }
  const std::uint64_t eligible = message.loss.tolerance_ppm > 0 ? size : 0;
  totals_.delivered_bytes += size - missing;
  totals_.missing_bytes += missing;
  totals_.eligible_bytes += eligible;
  if (record == nullptr) return;
  Reception& reception = record->reception;
  ++reception.messages;
  reception.delivered_bytes += size - missing;
  reception.missing_bytes += missing;
  reception.eligible_bytes += eligible;
  reception.contributions += missing * (std::uint64_t{message.loss.stage} + 1);
}

ReceptionBook::Totals ReceptionBook::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::optional<Reception> ReceptionBook::find(const CollectiveKey& key) const {
  const std::lock_guard lock(mutex_);
  const Record* record = lookup(key);
  if (record == nullptr) return std::nullopt;
  return record->reception;
}

std::vector<Reception> ReceptionBook::list(std::size_t capacity) const {
  std::vector<Record> all;
  all.reserve(records_.size());
  {
    const std::lock_guard lock(mutex_);
    for (const Record& record : records_) {
      if (record.serial != 0) all.push_back(record);
    }
  }
  std::sort(all.begin(), all.end(), [](const Record& a, const Record& b) { return a.serial > b.serial; });
  std::vector<Reception> out;
  for (std::size_t i = 0; i < std::min(capacity, all.size()); ++i) out.push_back(all[i].reception);
  return out;
}

std::optional<ReceptionBook::Holes> ReceptionBook::holes(const CollectiveKey& key) const {
  const std::lock_guard lock(mutex_);
  const Record* record = lookup(key);
  if (record == nullptr) return std::nullopt;
  Holes out{{}, record->reception.missing_ranges};
  // Between its first and its last only, and those that are asked for soon are the newest: completed receives wait.
  const std::uint64_t oldest = holes_seen_ > kHoles ? holes_seen_ - kHoles : 0;
  for (std::uint64_t i = std::max(oldest, record->first_hole); i < holes_seen_ && out.kept.size() < out.all; ++i) {
    const KeptHole& kept = holes_[i % kHoles];
    if (kept.serial == record->serial) out.kept.push_back(kept.hole);
  }
  return out;
}

}  // namespace clustar::nccl_plugin
