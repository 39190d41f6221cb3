// Members of a group in one process, which run their programs over a network that delivers when it likes; and what
// their results have to be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "paraexpress/core/program.h"
#include "paraexpress/sums/reduce.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress::program_test {

using Bytes = std::vector<std::byte>;

// Sums of these round, so that their order shows.
inline Bytes contribution(DataType type, std::size_t count, Member rank) {
  Bytes bytes(count * element_bytes(type));
  Rng rng(rank * 1000 + static_cast<std::uint64_t>(type));
  const bool small = type == DataType::kFloat16 || type == DataType::kBfloat16;  // neither infinite nor NaN
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(rng.below(small ? 60 : 256));
  if (type != DataType::kFloat32 && type != DataType::kFloat64) return bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = (rng.uniform() - 0.5) * (i % 3 == 0 ? 1e6 : 1e-3);
    const float single = static_cast<float>(value);
    std::memcpy(bytes.data() + i * element_bytes(type),
                type == DataType::kFloat32 ? static_cast<const void*>(&single) : &value, element_bytes(type));
  }
  return bytes;
}

inline Bytes part_of(const Bytes& bytes, const ElementRange& range, DataType type) {
  const auto at = [&](std::uint64_t element) {
    return bytes.begin() + static_cast<std::ptrdiff_t>(element * element_bytes(type));
  };
  return {at(range.begin), at(range.end)};
}

// What a member has of a shard when its sums are in, added as the plan says.
inline Bytes reduction_at(const Forest& forest, std::size_t shard, Member member, const ElementRange& range,
                          const std::vector<Bytes>& inputs, DataType type, Reduction reduction) {
  std::vector<Bytes> parts;
  for (const Member addend : role_of(forest, shard, member).addends) {
    parts.push_back(addend == member ? part_of(inputs[member], range, type)
                                     : reduction_at(forest, shard, addend, range, inputs, type, reduction));
  }
  std::vector<const void*> pointers;
  for (const Bytes& part : parts) pointers.push_back(part.data());
  Bytes out(range.size() * element_bytes(type));
  reduce_into(out.data(), pointers, range.size(), type, reduction);
  return out;
}
// The whole buffer's.
inline Bytes reduction_of(const Forest& forest, std::uint64_t count, const std::vector<Bytes>& inputs, DataType type,
                          Reduction reduction) {
  Bytes all;
  const auto ranges = element_ranges(forest, count);
  for (std::size_t shard = 0; shard < ranges.size(); ++shard) {
    const Bytes part = reduction_at(forest, shard, forest.shards[shard].root, ranges[shard], inputs, type, reduction);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

struct Limits {
  std::uint64_t chunk = 1;
  std::uint32_t window = 1;
  std::uint32_t posted = 1;  // per link
};
struct Elements {
  DataType type = DataType::kFloat32;
  Reduction reduction = Reduction::kSum;
  std::uint64_t count = 0;
};

// A message goes from sender's elements into what the receiver posted, when both ends have
// posted it: it ends at both ends at times of their own.
class Cluster {
 public:
  // `memory`: each rank's, as many elements each. Helpers have their own.
  Cluster(const Forest& forest, Collective collective, const Elements& elements, std::vector<Bytes> memory,
          const Limits& limits, std::uint64_t seed)
      : limits_(limits), elements_(elements), each_(element_bytes(elements.type)), rng_(seed) {
    const auto ranges = element_ranges(forest, elements.count);
    ranks_ = forest.ranks;
    memory.resize(forest.members(), Bytes(elements.count * each_));
    for (Member member = 0; member < forest.members(); ++member) {
      one_.push_back({Program(seat_of(forest, member), collective, ranges, limits.chunk, limits.window),
                      std::move(memory[member]),
                      {},
                      {}});
      const std::size_t links = one_[member].program.links();
      one_[member].places.assign(links, std::vector<Bytes>(limits.window));
      one_[member].posted.resize(links);
    }
  }
  const Bytes& memory(Member member) const { return one_[member].memory; }
  std::vector<Bytes> memory() const {
    std::vector<Bytes> all;
    for (const One& one : one_) all.push_back(one.memory);
    return all;
  }

  // After so many steps of members the helper is dead; each rank notices at a time of its own.
  void kill(Member helper, std::uint64_t steps) {
    victim_ = helper;
    lives_ = steps;
  }
  bool lost(Member rank) const { return one_[rank].lost; }
  // Elements of the victim's result.
  std::uint64_t came(Member rank) const { return one_[rank].came; }

  // False: it stands still.
  bool run() {
    std::vector<Member> order(one_.size());
    for (Member member = 0; member < order.size(); ++member) order[member] = member;
    for (;;) {
      bool moved = false;
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.below(i)]);
      for (const Member member : order) moved |= step(member);
      const auto ended = [](const One& one) { return one.dead || one.program.done(); };
      if (std::ranges::all_of(one_, ended)) return true;
      if (!moved && ++idle_ > 100) return false;
      if (moved) idle_ = 0;
    }
  }

 private:
  struct Posted {
    Program::Message message;
    bool arrived = false;
    Bytes result{};  // a helper's: it lands when the message ends
  };
  struct One {
    Program program;
    Bytes memory;
    std::vector<std::vector<Bytes>> places;  // by link and place
    std::vector<std::deque<Posted>> posted;  // by link
    bool dead = false, lost = false;
    std::uint64_t came = 0;
  };

  void lose(One& one) {
    for (std::size_t link = 0; link < one.program.links(); ++link) {
      if (one.program.link(link).peer == victim_) one.posted[link].clear();
    }
    one.program.abandon(victim_);
    one.lost = true;
  }

  bool step(Member member) {
    One& one = one_[member];
    bool moved = false;
    if (victim_ != kNobody && ++steps_ >= lives_) one_[victim_].dead = true;
    if (one.dead) return false;
    if (member < ranks_ && victim_ != kNobody && one_[victim_].dead && !one.lost && rng_.chance(0.1)) {
      lose(one);
      moved = true;
    }
    for (std::size_t link = 0; link < one.program.links(); ++link) {
      auto& posted = one.posted[link];
      if (one.program.link(link).sends && rng_.chance(0.7)) moved |= deliver(member, link);
      while (!posted.empty() && posted.front().arrived && rng_.chance(0.7)) {
        const Posted& first = posted.front();
        std::copy(first.result.begin(), first.result.end(),
                  one.memory.begin() + static_cast<std::ptrdiff_t>(first.message.range.begin * each_));
        const Program::Link& facts = one.program.link(link);
        if (facts.peer == victim_ && !facts.sends) one.came += first.message.range.size();
        posted.pop_front();
        one.program.ended(link);
        moved = true;
      }
      while (one.program.under_way(link) < limits_.posted && rng_.chance(0.8)) {
        const auto message = one.program.next(link);
        if (!message) break;
        posted.push_back({*message});
        one.program.posted(link);
        moved = true;
      }
    }
    if (const auto sum = rng_.chance(0.5) ? one.program.next_sum() : std::nullopt) {
      add(one, *sum);
      one.program.summed();
      moved = true;
    }
    return moved;
  }

  void add(One& one, const Program::Sum& sum) {
    std::byte* const own = one.memory.data() + sum.range.begin * each_;
    std::vector<const void*> inputs;
    for (const auto& input : sum.inputs) {
      const bool mine = input.link == Program::Sum::kOwn;
      inputs.push_back(mine ? own : one.places[input.link][input.place].data());
      EXPECT_TRUE(mine || one.places[input.link][input.place].size() == sum.range.size() * each_);
    }
    reduce_into(own, inputs, sum.range.size(), elements_.type, elements_.reduction);
  }

  bool deliver(Member from, std::size_t link) {
    One& sender = one_[from];
    const Program::Link facts = sender.program.link(link);
    One& receiver = one_[facts.peer];
    if (receiver.dead || (receiver.lost && from == victim_)) return false;
    std::size_t theirs = 0;
    while (receiver.program.link(theirs).peer != from || receiver.program.link(theirs).sends ||
           receiver.program.link(theirs).up != facts.up) {
      ++theirs;
    }
    const auto waits = [](const Posted& posted) { return !posted.arrived; };
    auto& to = receiver.posted[theirs];
    auto& sent = sender.posted[link];
    const auto out = std::find_if(sent.begin(), sent.end(), waits);
    const auto in = std::find_if(to.begin(), to.end(), waits);
    if (out == sent.end() || in == to.end()) return false;
    EXPECT_EQ(out->message.range.begin, in->message.range.begin) << "both ends know the order";
    EXPECT_EQ(out->message.range.end, in->message.range.end);
    const Bytes part = part_of(sender.memory, out->message.range, elements_.type);
    if (facts.up) {
      receiver.places[theirs][in->message.place] = part;
    } else if (from >= ranks_) {
      in->result = part;
    } else {
      std::memcpy(receiver.memory.data() + in->message.range.begin * each_, part.data(), part.size());
    }
    out->arrived = in->arrived = true;
    return true;
  }

  const Limits limits_;
  const Elements elements_;
  const std::size_t each_;  // bytes
  Rng rng_;
  std::vector<One> one_;
  std::uint32_t ranks_ = 0;
  Member victim_ = kNobody;
  std::uint64_t lives_ = 0, steps_ = 0;
  int idle_ = 0;
};

}  // namespace clustar::paraexpress::program_test
