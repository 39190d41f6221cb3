#include "paraexpress/tolerant/core/giver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "paraexpress/tolerant/core/average.h"

namespace clustar::paraexpress::tolerant {
namespace {

bool is_disjoint(std::span<const ElementRange> ranges, std::uint64_t count) {
  std::uint64_t from = 0;
  for (const ElementRange& range : ranges) {
    if (range.begin < from || range.end <= range.begin || range.end > count) return false;
    from = range.end;
  }
  return true;
}

}  // namespace

Giver::Giver(const Terms& terms, Wire& wire, std::uint32_t bucket)
    : terms_(terms), wire_(wire), bucket_(bucket), results_(terms.ranks), next_result_(terms.ranks) {}

std::optional<std::string> Giver::restore(Residual residual) {
  if (residual.count == 0) return std::nullopt;
  if (residual_.rounds > 0 || open()) {
    return fmt::format("bucket {} is in use: restore what was kept before its first round", bucket_);
  }
  const std::size_t bytes = residual.count * element_bytes(residual.type);
  if (!residual.elements.empty() && residual.elements.size() != bytes) {
    return fmt::format("{} bytes were kept of bucket {} of {} elements of {}; allowed: {}", residual.elements.size(),
                       bucket_, residual.count, name_of(residual.type), bytes);
  }
  if (const auto wrong = admit(terms_.self, residual.count, residual.type)) return wrong->what;
  if (residual_.elements.empty()) {
    residual_.elements = std::move(residual.elements);
  } else if (!residual.elements.empty()) {
    const std::array<const void*, 2> inputs{residual_.elements.data(), residual.elements.data()};
    sum_into(residual_.elements.data(), inputs, residual.count, residual.type);
  }
  // Of a group of another size the parts are others. An element may then count for more gradients than are in it.
  const auto most = std::ranges::max_element(residual.owed);
  const bool same = residual.owed.size() == terms_.ranks;
  for (Member root = 0; root < terms_.ranks && !residual.owed.empty(); ++root) {
    residual_.owed[root] = std::min(residual_.owed[root] + (same ? residual.owed[root] : *most), kMostWeight - 1);
  }
  return std::nullopt;
}

std::optional<Fault> Giver::admit(Member from, std::uint64_t count, DataType type) {
  if (residual_.count == 0) {
    element_ = element_bytes(type);
    residual_ = {count, type, 0, std::vector<std::uint32_t>(terms_.ranks), {}};
    for (Member root = 0; root < terms_.ranks; ++root) parts_.push_back({.range = part_of(root, terms_.ranks, count)});
  }
  if (count == residual_.count && type == residual_.type) return std::nullopt;
  return Fault{
      from, ErrorCode::kInvalidUsage,
      fmt::format("bucket {} has {} elements of {}, where rank {} knew of {} of {}; it must stay as it is, and "
                  "all ranks must be told the same",
                  bucket_, count, name_of(type), terms_.self, residual_.count, name_of(residual_.type))};
}

std::optional<Fault> Giver::begin(std::byte* elements, std::uint64_t count, DataType type, bool gives,
                                  const ToOwnPart& own) {
  if (open()) {
    return Fault{terms_.self, ErrorCode::kInvalidUsage,
                 fmt::format("a round of bucket {} where the one before has not ended: wait for it", bucket_)};
  }
  if (auto wrong = admit(terms_.self, count, type)) return wrong;
  // Not before: of others' notes alone no memory is taken.
  if (residual_.elements.empty()) residual_.elements.resize(count * element_);
  elements_ = elements;
  for (Member root = 0; root < terms_.ranks; ++root) {
    if (parts_[root].range.size() == 0) continue;
    if (auto wrong = give(root, gives, own)) return wrong;
  }
  return std::nullopt;
}

std::optional<Fault> Giver::give(Member root, bool gives, const ToOwnPart& own) {
  Part& part = parts_[root];
  part.weight = residual_.owed[root] + (gives ? 1 : 0);
  part.given = nullptr;
  part.offered = false;
  part.missing.clear();
  const std::size_t bytes = bytes_of(part);
  if (part.weight > 0) {
    part.given = wire_.take(bytes);
    if (part.given == nullptr) return no_memory(terms_.self, bytes);
    const std::array<const void*, 2> inputs{residual_of(part), elements_ + part.range.begin * element_};
    sum_into(part.given.get(), std::span(inputs).first(gives ? 2 : 1), part.range.size(), residual_.type);
  }
  // It has ended without this rank.
  if (!results_[root].empty()) return std::nullopt;
  part.offered = true;
  Note note;
  note.type = residual_.type;
  note.bucket = bucket_;
  note.round = residual_.rounds;
  note.count = residual_.count;
  note.weight = part.weight;
  note.fresh = gives;
  if (root == terms_.self) return own(note, part.given);
  wire_.say(root, note);
  if (part.given == nullptr) return std::nullopt;
  part.on_its_way = true;
  wire_.send(root, part.given, bytes, {NoteKind::kContribution, bucket_, note.round});
  return std::nullopt;
}

std::optional<Fault> Giver::told(Member root, const Note& note) {
  if (auto wrong = admit(root, note.count, note.type)) return wrong;
  const bool due = note.round == next_result_[root] && note.round <= residual_.rounds + terms_.staleness;
  if (!due || parts_[root].range.size() == 0) {
    return Fault{root, ErrorCode::kRemote,
                 fmt::format("it tells a result of round {} of bucket {}, where round {} is to come and rank {} is in "
                             "round {}",
                             note.round, bucket_, next_result_[root], terms_.self, residual_.rounds)};
  }
  ++next_result_[root];
  const std::size_t bytes = bytes_of(parts_[root]) + note.left_out * kRangeBytes;
  Block block = wire_.take(bytes);
  if (block == nullptr) return no_memory(terms_.self, bytes);
  wire_.receive(root, block, bytes, {NoteKind::kResult, bucket_, note.round});
  results_[root].push_back({note, std::move(block), false, {}});
  return std::nullopt;
}

std::optional<Fault> Giver::came(Member root) {
  const auto result = std::ranges::find(results_[root], false, &Came::whole);
  result->whole = true;
  const std::byte* at = result->block.get() + bytes_of(parts_[root]);
  for (std::uint32_t i = 0; i < result->note.left_out; ++i) {
    result->left_out.push_back(parse_range(std::span<const std::byte, kRangeBytes>(at, kRangeBytes)));
    at += kRangeBytes;
  }
  if (is_disjoint(result->left_out, parts_[root].range.size())) return std::nullopt;
  return Fault{root, ErrorCode::kRemote,
               fmt::format("its result of bucket {} leaves out what it does not have", bucket_)};
}

std::optional<Fault> Giver::own_result(Member counted_by, const Note& note, Block block) {
  if (auto wrong = admit(counted_by, note.count, note.type)) return wrong;
  ++next_result_[terms_.self];
  results_[terms_.self].push_back({note, std::move(block), false, {}});
  return came(terms_.self);
}

void Giver::sent(Member root, std::uint64_t round, std::span<const ElementRange> missing) {
  if (round != residual_.rounds || !open()) return;  // its round ended without it, and it was kept then
  parts_[root].on_its_way = false;
  parts_[root].missing = elements_of(missing, element_, parts_[root].range.size());
}

std::optional<Outcome> Giver::settle() {
  if (!open()) return std::nullopt;
  for (Member root = 0; root < terms_.ranks; ++root) {
    const Part& part = parts_[root];
    if (part.range.size() == 0) continue;
    if (results_[root].empty() || !results_[root].front().whole) return std::nullopt;
    if (part.on_its_way && results_[root].front().note.counted.test(terms_.self)) return std::nullopt;
  }
  Outcome outcome{.round = residual_.rounds, .gradients = ~std::uint32_t{0}};
  for (Member root = 0; root < terms_.ranks; ++root) {
    Part& part = parts_[root];
    if (part.range.size() == 0) continue;
    const Came& result = results_[root].front();
    keep(part, root, result, outcome);
    std::memcpy(elements_ + part.range.begin * element_, result.block.get(), bytes_of(part));
    outcome.gradients = std::min(outcome.gradients, result.note.weight);
    results_[root].pop_front();
  }
  ++residual_.rounds;
  elements_ = nullptr;
  return outcome;
}

void Giver::keep(Part& part, Member root, const Came& result, Outcome& outcome) {
  part.on_its_way = false;
  if (part.given == nullptr) return;
  outcome.given += part.range.size();
  std::byte* const residual = residual_of(part);
  if (!part.offered || !result.note.counted.test(terms_.self)) {
    std::memcpy(residual, part.given.get(), bytes_of(part));
    residual_.owed[root] = std::min(part.weight, kMostWeight - 1);
    outcome.kept += part.range.size();
  } else {
    residual_.owed[root] = 0;
    std::memset(residual, 0, bytes_of(part));
    // What is both missing and left out is kept once.
    std::vector<ElementRange> bytes;
    for (const std::vector<ElementRange>* ranges : {&std::as_const(part).missing, &result.left_out}) {
      for (const ElementRange& one : *ranges) bytes.push_back({one.begin * element_, one.end * element_});
    }
    for (const ElementRange& one : elements_of(bytes, element_, part.range.size())) {
      std::memcpy(residual + one.begin * element_, part.given.get() + one.begin * element_, one.size() * element_);
      outcome.kept += one.size();
    }
  }
  part.given = nullptr;
}

bool Giver::is_late() const { return *std::ranges::max_element(next_result_) > residual_.rounds + (open() ? 1 : 0); }

std::uint32_t Giver::owed() const {
  if (open()) return 0;
  const auto most = std::ranges::max_element(residual_.owed);
  return most == residual_.owed.end() ? 0 : *most;
}

}  // namespace clustar::paraexpress::tolerant
