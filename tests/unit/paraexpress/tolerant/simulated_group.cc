#include "tests/unit/paraexpress/tolerant/simulated_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace clustar::paraexpress::tolerant {

SimulatedGroup::SimulatedGroup(const Simulated& options) : options_(options), rng_(options.seed) {
  for (Member rank = 0; rank < options.terms.ranks; ++rank) {
    Terms terms = options.terms;
    terms.self = rank;
    terms.buckets = static_cast<std::uint32_t>(options.counts.size());
    ranks_.push_back(std::make_unique<Rank>(*this, terms));
  }
  // Those of ranks that are no more are others' now.
  for (std::size_t old = 0; old < options.residuals.size(); ++old) {
    for (std::uint32_t bucket = 0; bucket < options.counts.size(); ++bucket) {
      EXPECT_FALSE(ranks_[old % ranks_.size()]->party.restore(bucket, options.residuals[old][bucket]));
    }
  }
  given_.resize(options.counts.size());
  results_.resize(options.counts.size());
  for (std::size_t bucket = 0; bucket < options.counts.size(); ++bucket) given_[bucket].resize(options.counts[bucket]);
}

void SimulatedGroup::run() {
  for (Member rank = 0; rank < ranks_.size(); ++rank) step(rank);
  while (!events_.empty() && !testing::Test::HasFailure()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.what();
  }
  for (const auto& rank : ranks_) EXPECT_EQ(rank->round, options_.rounds) << "rank " << rank->terms.self << " hangs";
}

std::vector<double> SimulatedGroup::difference(std::size_t bucket) const {
  std::vector<double> sum = given_[bucket];
  for (double& one : sum) one = -one;
  for (const auto& result : results_[bucket]) add(sum, result);
  for (const auto& rank : ranks_) {
    const Residual residual = rank->party.residual(static_cast<std::uint32_t>(bucket));
    std::vector<float> kept(residual.elements.size() / sizeof(float));
    std::memcpy(kept.data(), residual.elements.data(), residual.elements.size());
    add(sum, kept);
  }
  for (const auto& before : options_.residuals) {
    std::vector<float> kept(before[bucket].elements.size() / sizeof(float));
    std::memcpy(kept.data(), before[bucket].elements.data(), before[bucket].elements.size());
    for (std::size_t i = 0; i < kept.size(); ++i) sum[i] -= kept[i];
  }
  return sum;
}

std::vector<std::vector<Residual>> SimulatedGroup::residuals() const {
  std::vector<std::vector<Residual>> all;
  for (const auto& rank : ranks_) {
    all.emplace_back();
    for (std::uint32_t bucket = 0; bucket < options_.counts.size(); ++bucket) {
      all.back().push_back(rank->party.residual(bucket));
    }
  }
  return all;
}

void SimulatedGroup::say(Member from, Member to, const Note& note) {
  std::array<std::byte, kNoteBytes> bytes{};
  encode_note(note, bytes);
  if (note.kind == NoteKind::kResult && to == (from + 1) % ranks_.size()) {
    for (Member rank = 0; rank < ranks_.size(); ++rank) {
      std::uint64_t& missed = missed_[{from, note.bucket, rank}];
      missed = note.counted.test(rank) ? 0 : missed + 1;
      most_missed_ = std::max(most_missed_, missed);
    }
  }
  TimePoint& last = pipe(from, to).notes;
  last = std::max(last, now_ + delay());
  at(last, [this, from, to, bytes] {
    const auto parsed = parse_note(bytes, ranks_[to]->terms);
    ASSERT_TRUE(parsed);
    const auto fault = ranks_[to]->party.heard(from, *parsed, now_);
    ASSERT_FALSE(fault) << fault->what;
    look(to);
  });
}

void SimulatedGroup::send(Member from, Member to, Message message) {
  const auto kind = static_cast<std::size_t>(message.ticket.kind);
  TimePoint& last = pipe(from, to).elements[kind];
  const bool slow = message.ticket.kind == NoteKind::kContribution && options_.slow_uplink == from;
  last = std::max(last, now_ + delay() + (slow ? Duration(std::chrono::milliseconds(15)) : Duration(0)));
  at(last, [this, from, to, kind, message] {
    pipe(from, to).arrived[kind].push_back(message);
    match(from, to, message.ticket.kind);
  });
}

void SimulatedGroup::match(Member from, Member to, NoteKind kind) {
  Pipe& one = pipe(from, to);
  auto& arrived = one.arrived[static_cast<std::size_t>(kind)];
  auto& posted = one.posted[static_cast<std::size_t>(kind)];
  while (!arrived.empty() && !posted.empty()) {
    const Message sent = arrived.front(), into = posted.front();
    arrived.pop_front();
    posted.pop_front();
    ASSERT_EQ(sent.bytes, into.bytes);
    std::memcpy(into.block.get(), sent.block.get(), sent.bytes);
    const auto holes = kind == NoteKind::kContribution ? lose(into) : std::vector<ElementRange>{};
    after(Duration(0), [this, from, to, into, holes] {
      const auto fault = ranks_[to]->party.came(from, into.ticket, holes, now_);
      ASSERT_FALSE(fault) << fault->what;
      look(to);
    });
    after(delay(), [this, from, to, sent, holes] {
      ranks_[from]->party.sent(to, sent.ticket, holes);
      look(from);
    });
  }
}

std::vector<ElementRange> SimulatedGroup::lose(const Message& message) {
  std::vector<ElementRange> holes;
  while (rng_.uniform() < options_.holes && holes.size() < 5) {
    const std::uint64_t begin = rng_.below(message.bytes);
    const std::uint64_t end = begin + 1 + rng_.below(message.bytes - begin);
    holes.push_back({begin, end});
    std::memset(message.block.get() + begin, 0, end - begin);
  }
  return holes;
}

void SimulatedGroup::look(Member which) {
  Rank& rank = *ranks_[which];
  const auto fault = rank.party.advance(now_);
  ASSERT_FALSE(fault) << fault->what;
  for (std::uint32_t bucket = 0; bucket < rank.buffers.size(); ++bucket) {
    if (const auto outcome = rank.party.settle(bucket)) end(rank, bucket, *outcome);
  }
  const auto next = rank.party.next();
  if (!next || rank.looks) return;
  rank.looks = true;
  at(std::max(*next, now_ + Duration(1)), [this, which] {
    ranks_[which]->looks = false;
    look(which);
  });
}

void SimulatedGroup::end(Rank& rank, std::uint32_t bucket, const Outcome& outcome) {
  ASSERT_EQ(outcome.round, rank.round);
  auto& results = results_[bucket];
  if (results.size() <= rank.round) results.push_back(rank.buffers[bucket]);
  ASSERT_EQ(results[rank.round], rank.buffers[bucket]) << "round " << rank.round << " rank " << rank.terms.self;
  kept_ += outcome.kept;
  least_gradients_ = std::min(least_gradients_, outcome.gradients);
  if (--rank.open > 0) return;
  if (++rank.round < options_.rounds)
    after(Duration(0), [this, which = rank.terms.self] { step(which); });
  else if (finished_ == TimePoint{})
    finished_ = now_;
}

void SimulatedGroup::step(Member which) {
  Rank& rank = *ranks_[which];
  if (!rank.party.should_compute()) {
    ++rank.skipped;
    give(which, false);
    return;
  }
  const auto slow = options_.slow.find(which);
  const double factor =
      (slow == options_.slow.end() ? 1.0 : slow->second) * (1 + options_.spread * (2 * rng_.uniform() - 1));
  after(Duration(static_cast<std::int64_t>(static_cast<double>(options_.compute.count()) * factor)),
        [this, which] { give(which, true); });
}

void SimulatedGroup::give(Member which, bool gives) {
  Rank& rank = *ranks_[which];
  rank.open = rank.buffers.size();
  for (std::uint32_t bucket = 0; bucket < rank.buffers.size(); ++bucket) {
    std::vector<float>& buffer = rank.buffers[bucket];
    // Whole numbers, so that no order of additions rounds.
    for (float& one : buffer) one = static_cast<float>(rng_.below(17)) - 8;
    if (gives) add(given_[bucket], buffer);
    const auto fault = rank.party.begin(bucket, reinterpret_cast<std::byte*>(buffer.data()), buffer.size(),
                                        DataType::kFloat32, gives, now_);
    ASSERT_FALSE(fault) << fault->what;
  }
  look(which);
}

}  // namespace clustar::paraexpress::tolerant
