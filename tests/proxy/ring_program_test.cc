// The ring arithmetic, run for all ranks at once with queues for connections: every send meets a receive of its size,
// every element ends where it belongs, and the transfer index tells the phase as NCCL's does.
#include "bench/proxy/ring_program.h"

#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <vector>

namespace clustar::bench::proxy {
namespace {

// An element's value is the list of ranks whose contributions it holds, in the order of summation.
using Value = std::vector<int>;
using Block = std::vector<Value>;

struct Rank {
  RingProgram program;
  Block input;
  Block output;
  std::size_t next = 0;
  std::deque<Block> inbox;
  std::size_t sends = 0;
  std::size_t receives = 0;
  std::size_t empty_sends = 0;
};

bool step(std::vector<Rank>& ranks, std::size_t r) {
  Rank& rank = ranks[r];
  if (rank.next == rank.program.actions()) return false;
  const SliceAction action = rank.program.at(rank.next);
  if (action.receive && rank.inbox.empty()) return false;
  Block slice;
  if (action.receive) {
    EXPECT_EQ(rank.program.receive(rank.receives).count, action.count);
    ++rank.receives;
    slice = rank.inbox.front();
    rank.inbox.pop_front();
    EXPECT_EQ(slice.size(), action.count);
    if (action.reduce) {
      for (std::size_t i = 0; i < action.count; ++i) {
        const Value& own = rank.input.at(action.in + i);
        slice.at(i).insert(slice.at(i).end(), own.begin(), own.end());
      }
    }
  } else {
    for (std::size_t i = 0; i < action.count; ++i) slice.push_back(rank.input.at(action.in + i));
  }
  if (action.copy) {
    for (std::size_t i = 0; i < action.count; ++i) rank.output.at(action.out + i) = slice[i];
  }
  if (action.send) {
    ++rank.sends;
    rank.empty_sends += slice.empty() ? 1 : 0;
    ranks[(r + 1) % ranks.size()].inbox.push_back(std::move(slice));
  }
  ++rank.next;
  return true;
}

struct Case {
  Collective collective;
  Protocol protocol = Protocol::kSimple;
  int size = 2;
  std::size_t count = 0;
  std::size_t element = 4;
  int channels = 1;
  int root = 0;
};

// Elements of `count` a rank's input and output hold.
std::size_t blocks_in(const Case& c) { return c.collective == Collective::kReduceScatter ? c.size : 1; }
std::size_t blocks_out(const Case& c) { return c.collective == Collective::kAllGather ? c.size : 1; }

// Runs all channels of all ranks; the big element sizes used below keep the element counts small.
std::vector<Block> simulate(const Case& c, std::size_t* empty_sends = nullptr) {
  std::vector<Block> outputs(c.size);
  for (int r = 0; r < c.size; ++r) outputs[r].resize(c.count * blocks_out(c));
  for (int channel = 0; channel < c.channels; ++channel) {
    std::vector<Rank> ranks(c.size);
    const ChannelPart part =
        channel_part(channel, c.channels, c.count, c.count * c.element * blocks_in(c) * blocks_out(c), c.element);
    for (int r = 0; r < c.size; ++r) {
      ranks[r].program = RingProgram(c.collective, c.protocol, {r, c.size, c.root}, part, c.count, c.element);
      ranks[r].input.assign(c.count * blocks_in(c), Value{r});
      ranks[r].output = outputs[r];
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        while (step(ranks, r)) moved = true;
      }
    }
    for (int r = 0; r < c.size; ++r) {
      EXPECT_EQ(ranks[r].next, ranks[r].program.actions()) << "rank " << r << " is stuck";
      EXPECT_EQ(ranks[r].sends, ranks[r].program.sends());
      EXPECT_EQ(ranks[r].receives, ranks[r].program.receives());
      EXPECT_TRUE(ranks[r].inbox.empty());
      if (empty_sends != nullptr) *empty_sends += ranks[r].empty_sends;
      outputs[r] = ranks[r].output;
    }
  }
  return outputs;
}

constexpr std::size_t kBig = 4096;  // bytes per element in the simulation: 512 of them fill a chunk

TEST(RingProgram, AllReduceSumsOnceFromEveryRankInRingOrder) {
  for (int n = 2; n <= 16; ++n) {
    for (const std::size_t count : {1u, 3u, 31u, 512u * 2u, 512u * 16u + 5u}) {
      for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL}) {
        if (protocol == Protocol::kLL && count > 2000) continue;
        const auto outputs = simulate({Collective::kAllReduce, protocol, n, count, kBig, 1, 0});
        for (std::size_t i = 0; i < count; ++i) {
          const Value& value = outputs[0][i];
          ASSERT_EQ(value.size(), static_cast<std::size_t>(n));
          for (std::size_t k = 1; k < value.size(); ++k) ASSERT_EQ(value[k], (value[k - 1] + 1) % n);
        }
        for (int r = 1; r < n; ++r) ASSERT_EQ(outputs[r], outputs[0]) << "n " << n << " count " << count;
      }
    }
  }
}

TEST(RingProgram, ReduceScatterEndsAtTheOwner) {
  for (int n = 2; n <= 8; ++n) {
    for (const std::size_t count : {1u, 5u, 512u, 1300u}) {
      const auto outputs = simulate({Collective::kReduceScatter, Protocol::kSimple, n, count, kBig, 1, 0});
      for (int r = 0; r < n; ++r) {
        Value expected;
        for (int k = 1; k <= n; ++k) expected.push_back((r + k) % n);
        for (const Value& value : outputs[r]) ASSERT_EQ(value, expected);
      }
    }
  }
}

TEST(RingProgram, AllGatherPlacesEveryBlock) {
  for (int n = 2; n <= 8; ++n) {
    for (const std::size_t count : {1u, 5u, 512u, 1300u}) {
      for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL128}) {
        const auto outputs = simulate({Collective::kAllGather, protocol, n, count, kBig, 3, 0});
        for (int r = 0; r < n; ++r) {
          for (std::size_t i = 0; i < outputs[r].size(); ++i) {
            ASSERT_EQ(outputs[r][i], Value{static_cast<int>(i / count)});
          }
        }
      }
    }
  }
}

TEST(RingProgram, BroadcastReachesAll) {
  for (int n = 2; n <= 5; ++n) {
    for (int root = 0; root < n; ++root) {
      const auto outputs = simulate({Collective::kBroadcast, Protocol::kSimple, n, 700, kBig, 2, root});
      for (int r = 0; r < n; ++r) {
        if (r == root) continue;
        for (const Value& value : outputs[r]) ASSERT_EQ(value, Value{root});
      }
    }
  }
}

TEST(RingProgram, ChannelsCoverEverythingOnce) {
  for (const std::size_t count : {0u, 1u, 7u, 8191u, 8193u, 100'001u, 1'048'579u}) {
    for (int channels = 1; channels <= 9; ++channels) {
      std::size_t at = 0;
      for (int c = 0; c < channels; ++c) {
        const ChannelPart part = channel_part(c, channels, count, count * 4, 4);
        ASSERT_EQ(part.begin, at);
        ASSERT_TRUE(part.begin % 4 == 0 || part.count == 0);
        at += part.count;
      }
      ASSERT_EQ(at, count);
    }
  }
}

// t = index of the transfer on the connection: stage = (t mod 2(n-1)S) / S, reduce-scatter while stage < n - 1.
TEST(RingProgram, TransferIndexTellsThePhase) {
  for (int n = 2; n <= 16; ++n) {
    const std::size_t slices = 2;
    const RingProgram program(Collective::kAllReduce, Protocol::kSimple, {1, n, 0}, {0, 3'000'001u * 4}, 0, 4);
    const std::size_t per_loop = 2 * static_cast<std::size_t>(n - 1) * slices;
    ASSERT_EQ(program.sends() % per_loop, 0u);
    std::size_t t = 0;
    for (std::size_t a = 0; a < program.actions(); ++a) {
      const SliceAction action = program.at(a);
      if (!action.send) continue;
      const bool reduce_phase = t % per_loop / slices < static_cast<std::size_t>(n - 1);
      // What is sent in the reduce-scatter phase is a partial sum, and is kept by nobody here.
      ASSERT_EQ(reduce_phase, !action.copy);
      ++t;
    }
  }
}

TEST(RingProgram, SlicesKeepToTheStepAndMayBeEmpty) {
  std::size_t empty = 0;
  simulate({Collective::kAllReduce, Protocol::kSimple, 4, 3, kBig, 1, 0}, &empty);
  EXPECT_GT(empty, 0u);  // NCCL sends 0 bytes for the second slice of a small chunk
  for (const std::size_t element : {1u, 4u, 8u}) {
    for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128}) {
      const StepShape shape = step_shape(Collective::kAllReduce, protocol);
      const std::size_t limit = wire_shape(protocol).step_bytes * static_cast<std::size_t>(shape.slice_steps);
      for (const std::size_t count : {1u, 1023u, 262'147u, 1'500'000u}) {
        const RingProgram program(Collective::kAllReduce, protocol, {0, 3, 0}, {0, count}, 0, element);
        for (std::size_t a = 0; a < program.actions(); ++a) {
          ASSERT_LE(wire_bytes(protocol, program.at(a).count * element), limit);
        }
      }
    }
  }
}

}  // namespace
}  // namespace clustar::bench::proxy
