#include "tests/sim/mlt_storm_witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::mlt::test {

namespace {

using Wide = unsigned __int128;

// p * S * n / E; nothing where a term makes no sense, as the contract has it.
Wide bound_of(const SendTerms& terms) {
  if (terms.ranks < 2 || terms.edges < 1 || terms.edges > terms.ranks) return 0;
  return Wide{terms.tolerance_ppm} * terms.collective_bytes * terms.ranks / (Wide{terms.edges} * 1'000'000);
}

}  // namespace

void StormLedgers::expect(const SendTerms& terms, std::uint64_t bytes) {
  Sums& sums = sums_[key_of(terms)];
  sums.terms = terms;
  sums.eligible += bytes;
}

std::optional<std::string> StormLedgers::miss(const SendTerms& terms, std::uint64_t bytes) {
  Sums& sums = sums_[key_of(terms)];
  sums.missing += bytes;
  sums.charged += bytes * (std::uint64_t{terms.stage} + 1);
  missing_ += bytes;
  if (terms.stage + 2 > terms.ranks) return fmt::format("missing at stage {} of {} ranks", terms.stage, terms.ranks);
  if (Wide{sums.charged} > bound_of(terms)) return fmt::format("{} charged, beyond the bound", sums.charged);
  if (Wide{sums.missing} * 1'000'000 > Wide{terms.tolerance_ppm} * sums.eligible) {
    return fmt::format("{} missing of {} eligible bytes, at {} ppm", sums.missing, sums.eligible, terms.tolerance_ppm);
  }
  return std::nullopt;
}

std::optional<std::string> StormLedgers::compare(const LedgerBook& book) const {
  for (const auto& [key, sums] : sums_) {
    const Ledger* ledger = book.find({key.communicator, key.collective, key.exchange});
    if (ledger == nullptr) return "a collective without a ledger";
    const LossCounters& counters = ledger->counters();
    if (counters.charged != sums.charged || counters.missing_bytes != sums.missing ||
        counters.eligible_bytes != sums.eligible) {
      return fmt::format("a ledger of {} charged, {} missing, {} eligible bytes where {}, {} and {} are",
                         counters.charged, counters.missing_bytes, counters.eligible_bytes, sums.charged, sums.missing,
                         sums.eligible);
    }
  }
  return std::nullopt;
}

Witness::Witness(const StormFlow& flow, StormLedgers& ledgers, Report report)
    : flow_(flow), ledgers_(ledgers), report_(std::move(report)), messages_(flow.messages.size()) {}

void Witness::violate(std::uint32_t number, const std::string& what) const {
  const StormMessage& message = flow_.messages[number];
  report_(fmt::format("message {} of {} B in {} packets, tag {}, {}: {}", number, message.bytes,
                      message.packets(flow_.sender.segment), message.tag,
                      message.terms.tolerant ? "tolerant" : "reliable", what));
}

std::uint64_t Witness::content(std::uint32_t number, std::uint32_t offset) const {
  return mix64(flow_.secret + number * kGoldenGamma) ^ offset;
}

bool Witness::cut(std::uint32_t number) const {
  const StormMessage& message = flow_.messages[number];
  return message.length < message.bytes && !flow_.receiver.cut_long;
}

void Witness::sent(std::uint32_t number, std::uint32_t id) {
  if (by_id_.empty()) first_id_ = id;
  if (id - first_id_ != by_id_.size()) violate(number, "numbered out of order");
  by_id_.push_back(number);
  messages_[number].sent = true;
  const std::uint32_t packets = flow_.messages[number].packets(flow_.sender.segment);
  if (!messages_[number].transmitted.reset(packets)) violate(number, "has too many packets");
}

std::uint64_t Witness::transmitted(const DataHeader& header, const Transmit& transmit) {
  if (transmit.message - first_id_ >= by_id_.size()) {
    report_("data of no message");
    return 0;
  }
  const std::uint32_t number = by_id_[transmit.message - first_id_];
  Message& message = messages_[number];
  const std::uint32_t bytes = flow_.messages[number].bytes;
  if (message.send_done) violate(number, "its memory is read after SendDone");
  if (header.parity) {
    const std::uint32_t end = std::min(message.transmitted.size(), (header.index / kMaxParity + 1) * kParityBlock);
    if (message.transmitted.count() < end) violate(number, "parity of what was not sent yet");
    if (transmit.length != flow_.sender.segment) violate(number, "parity of another length");
    return parity(number, header.index);
  }
  if (std::uint64_t{transmit.offset} + transmit.length > bytes) violate(number, "read behind its end");
  if (header.message_bytes != bytes || std::uint64_t{header.index} * header.segment != transmit.offset) {
    violate(number, "header and payload differ");
  }
  message.transmitted.set(header.index);
  return content(number, transmit.offset);
}

void Witness::send_done(const SendDone& done, const Sender& sender) {
  if (done.message - first_id_ >= by_id_.size()) return report_("SendDone of no message");
  const std::uint32_t number = by_id_[done.message - first_id_];
  Message& message = messages_[number];
  if (message.send_done) return violate(number, "SendDone twice");
  message.send_done = true;
  ++sends_done_;
  const PacketBitmap& delivered = sender.delivered(done.message);
  for (std::uint32_t i = delivered.first_clear(0); i < delivered.size(); i = delivered.first_clear(i + 1)) {
    message.undelivered.push_back(i);
  }
  if (message.undelivered.size() != done.missing_packets)
    violate(number, "SendDone counts other packets than it names");
}

void Witness::posted(std::uint32_t number, std::uint32_t receive) {
  if (!receives_.emplace(receive, number).second) violate(number, "its receive has the id of another one");
  messages_[number].posted = true;
  const StormMessage& planned = flow_.messages[number];
  if (!messages_[number].placed.reset(planned.packets(flow_.sender.segment))) violate(number, "has too many packets");
  if (may_lose(planned) && !cut(number)) ledgers_.expect(planned.terms, planned.bytes);
}

bool Witness::may_lose(const StormMessage& message) const {
  return message.terms.tolerant && message.bytes > 0 && message.terms.tolerance_ppm <= flow_.receiver.max_tolerance_ppm;
}

void Witness::arrived(const Placement& placement, std::uint32_t payload, std::uint64_t word) {
  if (placement.length != payload) report_(fmt::format("{} bytes placed of {}", placement.length, payload));
  if (placement.kind == Placement::Kind::kStage) {
    if (placement.id >= flow_.receiver.max_staged) report_("staged in a buffer that is not there");
    if (std::uint64_t{placement.offset} + placement.length > flow_.receiver.staging_bytes()) {
      report_("staged behind the buffer's end");
    }
    staged_[std::uint64_t{placement.id} << 32 | placement.offset] = {word, placement.length};
    return;
  }
  if (placement.kind == Placement::Kind::kParity) {
    if (placement.id >= flow_.receiver.max_parity) report_("parity in a buffer that is not there");
    if (placement.length > flow_.receiver.segment) report_("parity behind its buffer's end");
    parity_[placement.id] = word;
    return;
  }
  const auto receive = receives_.find(placement.id);
  if (receive == receives_.end()) return report_("placed in a receive that is not there, or done");
  place(receive->second, placement.offset, placement.length, word);
}

void Witness::place(std::uint32_t number, std::uint32_t offset, std::uint32_t length, std::uint64_t word) {
  const StormMessage& planned = flow_.messages[number];
  Message& message = messages_[number];
  if (std::uint64_t{offset} + length > planned.length && !flow_.receiver.cut_long) {
    violate(number, fmt::format("placed at {} in a receive of {} B", offset, planned.length));
  }
  if (flow_.lies) return;  // it may say what it likes, as long as it is said within the receive
  if (word != content(number, offset)) violate(number, fmt::format("foreign content at {}", offset));
  if (cut(number)) violate(number, "placed although its receive is too short");
  const std::uint32_t index = offset / flow_.sender.segment;
  if (offset % flow_.sender.segment != 0 || length != packet_bytes(index, planned.bytes, flow_.sender.segment)) {
    violate(number, fmt::format("{} B placed at {}", length, offset));
  }
  if (!message.placed.set(index) && planned.bytes > 0) violate(number, fmt::format("packet {} placed twice", index));
}

void Witness::rebuilt(const Rebuild& what) {
  const auto receive = receives_.find(what.receive);
  if (receive == receives_.end()) return report_("rebuilt in a receive that is not there, or done");
  const std::uint32_t number = receive->second;
  if (what.count == 0 || what.count > what.block_packets()) violate(number, "nothing to rebuild, or too much");
  if (what.bytes > flow_.messages[number].length) violate(number, "rebuilt where its block does not lie whole");
  for (std::uint32_t i = 0; i < what.count; ++i) {
    const auto [place_of, row, buffer] = what.missing[i];
    if (place_of >= what.block_packets() || row >= kMaxParity) violate(number, "rebuilt what there is not");
    for (std::uint32_t other = 0; other < i; ++other) {
      if (what.missing[other].row == row) violate(number, "rebuilt by one row twice");
    }
    const auto held = parity_.find(buffer);
    const bool its_own = held != parity_.end() && held->second == parity(number, what.block * kMaxParity + row);
    if (!flow_.lies && !its_own) violate(number, "rebuilt by parity of something else");
    const std::uint32_t index = what.index(place_of);
    const std::uint32_t offset = index * what.segment;
    place(number, offset, packet_bytes(index, what.bytes, what.segment), content(number, offset));
  }
  rebuilt_ += what.count;
  for (std::uint32_t at = 0; !flow_.lies && at < what.block_packets(); ++at) {
    if (!messages_[number].placed.test(what.index(at))) violate(number, "rebuilt a block of which more is missing");
  }
}

void Witness::unstaged(std::uint32_t id, const Receiver::Staged& piece) {
  const auto receive = receives_.find(id);
  if (receive == receives_.end()) return report_("unstaged for a receive that is not there, or done");
  const auto held = staged_.find(std::uint64_t{piece.buffer} << 32 | piece.buffer_offset);
  if (held == staged_.end() || held->second.length != piece.length) {
    if (flow_.lies && std::uint64_t{piece.buffer_offset} + piece.length <= flow_.receiver.staging_bytes()) {
      return place(receive->second, piece.offset, piece.length, 0);
    }
    return violate(receive->second, "the staging buffer holds something else");
  }
  place(receive->second, piece.offset, piece.length, held->second.word);
}

void Witness::received(const ReceiveDone& done, const Receiver& receiver) {
  const auto receive = receives_.find(done.receive);
  if (receive == receives_.end()) return report_("ReceiveDone of no receive, or twice");
  const std::uint32_t number = receive->second;
  receives_.erase(receive);
  ++receives_done_;
  Message& message = messages_[number];
  message.done = true;
  message.truncated = done.truncated;
  if (done.truncated) ++truncated_;
  if (flow_.lies) {
    for (auto range = receiver.missing(done.receive, 0); range && done.missing > 0;
         range = receiver.missing(done.receive, range->offset + range->length)) {
      if (std::uint64_t{range->offset} + range->length > done.bytes) violate(number, "misses more than there is");
    }
    return;
  }
  if (!message.sent) violate(number, "received before it was sent");
  if (done.bytes != flow_.messages[number].bytes) violate(number, fmt::format("{} B are done", done.bytes));
  if (done.truncated != cut(number)) violate(number, done.truncated ? "truncated" : "not truncated");
  if (done.truncated) {
    if (done.missing > 0 || message.placed.count() > 0) violate(number, "truncated, and something placed or missing");
    return;
  }
  check_missing(number, done, receiver);
}

void Witness::check_missing(std::uint32_t number, const ReceiveDone& done, const Receiver& receiver) {
  Message& message = messages_[number];
  const StormMessage& planned = flow_.messages[number];
  std::uint64_t named = 0;
  const std::uint16_t segment = flow_.sender.segment;
  for (auto range = receiver.missing(done.receive, 0); range && done.missing > 0;
       range = receiver.missing(done.receive, range->offset + range->length)) {
    named += range->length;
    for (std::uint32_t at = range->offset; at < range->offset + range->length; at += segment) {
      const std::uint32_t index = at / segment;
      message.missing.push_back(index);
      if (message.placed.test(index)) violate(number, fmt::format("packet {} is there, and is called missing", index));
      if (!message.transmitted.test(index)) violate(number, fmt::format("packet {} was never sent", index));
      if (planned.important.test(index)) violate(number, fmt::format("the important packet {} is missing", index));
    }
  }
  if (named != done.missing) violate(number, fmt::format("{} bytes missing, ranges of {} named", done.missing, named));
  if (planned.bytes > 0 && message.placed.count() + message.missing.size() != message.placed.size()) {
    violate(number, fmt::format("{} packets placed and {} missing", message.placed.count(), message.missing.size()));
  }
  if (done.missing > 0) check_loss(number, done);
}

void Witness::check_loss(std::uint32_t number, const ReceiveDone& done) {
  const StormMessage& planned = flow_.messages[number];
  const Message& message = messages_[number];
  missing_bytes_ += done.missing;
  if (!may_lose(planned)) return violate(number, fmt::format("{} bytes missing", done.missing));
  if (message.missing.size() > message_cap_packets(planned.packets(flow_.sender.segment))) {
    violate(number, fmt::format("{} packets missing", message.missing.size()));
  }
  if (const auto wrong = ledgers_.miss(planned.terms, done.missing)) violate(number, *wrong);
}

StormRest Witness::rest() const {
  StormRest rest;
  for (std::uint32_t i = 0; i < messages_.size(); ++i) {
    if (messages_[i].done && messages_[i].send_done) continue;
    rest.bytes += flow_.messages[i].bytes;
    const std::uint32_t packets = flow_.messages[i].packets(flow_.sender.segment);
    rest.packets += packets;
    rest.windows = std::max(rest.windows, (packets + State::kWindow - 1) / State::kWindow);
    ++rest.messages;
  }
  return rest;
}

std::string Witness::unfinished() const {
  std::string text;
  for (std::uint32_t i = 0; i < messages_.size() && text.size() < 300; ++i) {
    const Message& message = messages_[i];
    if (message.done && message.send_done) continue;
    text += fmt::format(" {} ({} B, {}{}, {}{}, {} of {} packets placed)", i, flow_.messages[i].bytes,
                        message.sent ? "sent" : "not sent", message.send_done ? " and done" : "",
                        message.posted ? "posted" : "not posted", message.done ? " and done" : "",
                        message.placed.count(), message.placed.size());
  }
  return text;
}

void Witness::compare_ends() {
  for (std::uint32_t i = 0; i < messages_.size(); ++i) {
    const Message& message = messages_[i];
    if (message.truncated || flow_.messages[i].bytes == 0) continue;
    if (message.missing != message.undelivered) {
      violate(i, fmt::format("misses {} packets, and its sender was told of {}", message.missing.size(),
                             message.undelivered.size()));
    }
  }
}

}  // namespace clustar::mlt::test
