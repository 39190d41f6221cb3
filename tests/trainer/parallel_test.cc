// How a step is divided: buckets planned again, micro-batches, sharded optimisers and all-to-alls of layers, over a
// fake transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "bench/trainer/parallel/bucket_order.h"
#include "bench/trainer/parallel/layer_terms.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/on_ranks.h"
#include "tests/trainer/problem.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every tensor has a bucket of its own, so that the order of tensors is all that plans differ by.
constexpr BucketCaps kOneEach{.first_bytes = 1, .bytes = 1};

// The order of parameters, which is the contrary of that of gradients.
std::vector<std::size_t> forwards(std::size_t tensors) {
  std::vector<std::size_t> order(tensors);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

Problem planned(const std::string& model, const BucketCaps& caps, bool wrongly) {
  Problem problem(model);
  const auto sizes = problem.model.tensor_elements();
  problem.plan = wrongly ? plan_buckets(sizes, forwards(sizes.size()), caps) : plan_buckets(sizes, caps);
  return problem;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

void expect_sound(const std::vector<RankOutcome>& ranks) {
  for (const RankOutcome& rank : ranks) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.report->failure, "");
    EXPECT_EQ(rank.report->replicas_identical, true);
    EXPECT_EQ(rank.ordered, ranks[0].ordered);
  }
}

TEST(ShardedBuckets, HaveRoomForEqualShardsOfWholeLines) {
  const std::vector<std::size_t> sizes{5, 16, 1};
  const BucketPlan plan = plan_buckets(sizes, {.first_bytes = 1, .bytes = 1, .shards = 3});
  std::vector<std::size_t> offsets;
  for (const Bucket& bucket : plan.buckets) {
    offsets.push_back(bucket.offset);
    EXPECT_EQ(plan.shard_elements(bucket) % 4, 0u);
    EXPECT_GE(plan.room(bucket), bucket.elements);
  }
  EXPECT_THAT(offsets, ElementsAre(0u, 12u, 36u));
  EXPECT_EQ(plan.elements, 48u);
  EXPECT_EQ(plan.parameters(), 22u);
  EXPECT_GE(plan.capacity(), plan.elements);
  EXPECT_EQ(plan_one_bucket(sizes, {.shards = 3}).elements, 24u);
}

TEST(OneBucket, IsPlannedAgainByTheCaps) {
  const std::vector<std::size_t> sizes{4, 3, 1, 4};
  const BucketPlan one = plan_one_bucket(sizes, {.first_bytes = 16, .bytes = 16});
  EXPECT_EQ(one.buckets.size(), 1u);
  const auto next = parallel::rebuilt_buckets(one, one.buckets[0].tensors, nullptr);
  ASSERT_TRUE(next && *next);
  EXPECT_EQ((*next)->buckets.size(), 3u);
  EXPECT_EQ((*next)->tensor_offset, plan_buckets(sizes, 16, 16).tensor_offset);
}

TEST(BucketOrder, IsThatOfRankZeroOnAllRanks) {
  const std::vector<std::size_t> sizes{4, 3, 1, 4};
  const BucketPlan plan = plan_buckets(sizes, kOneEach);
  const std::vector<std::vector<std::size_t>> orders{{3, 1, 2, 0}, {0, 1, 2, 3}, {3, 2, 1, 0}};
  FakeWorld world(3);
  std::vector<std::vector<std::size_t>> firsts(3);
  const auto errors = tests::on_ranks(3, [&](int rank) -> Result<void> {
    const auto at = static_cast<std::size_t>(rank);
    const auto next = parallel::rebuilt_buckets(plan, orders[at], world.bootstrap(rank).get());
    if (!next) return tl::unexpected(next.error());
    for (const Bucket& bucket : (*next)->buckets) firsts[at].push_back(bucket.tensors[0]);
    return {};
  });
  EXPECT_THAT(errors, Each(std::string()));
  EXPECT_THAT(firsts, Each(orders[0]));
}

TEST(BucketOrder, TheSameIsNoNewPlanAndAMissingGradientAnError) {
  const std::vector<std::size_t> sizes{4, 3, 1};
  const BucketPlan plan = plan_buckets(sizes);
  const std::vector<std::size_t> same{2, 1, 0};
  EXPECT_FALSE(*parallel::rebuilt_buckets(plan, same, nullptr));
  for (const std::vector<std::size_t>& wrong : {std::vector<std::size_t>{2, 1}, {2, 1, 1}, {2, 1, 3}}) {
    EXPECT_FALSE(parallel::rebuilt_buckets(plan, wrong, nullptr));
  }
}

TEST(BucketOrder, MovesEachTensorsBits) {
  const std::vector<std::size_t> sizes{2, 3, 1};
  const BucketPlan from = plan_buckets(sizes, {.first_bytes = 1, .bytes = 1, .shards = 2});
  const BucketPlan to = plan_buckets(sizes, forwards(3), from.caps);
  std::vector<float> flat(from.capacity());
  const std::vector<float> values{-0.0f, std::nanf("7"), 3, 4, 5, 6};
  std::size_t next = 0;
  for (std::size_t tensor = 0; tensor < 3; ++tensor) {
    for (std::size_t i = 0; i < sizes[tensor]; ++i) flat[from.tensor_offset[tensor] + i] = values[next++];
  }
  flat[from.elements - 1] = 99;  // between tensors
  const auto bits = [](const std::vector<float>& all) {
    std::vector<std::uint32_t> words(all.size());
    std::memcpy(words.data(), all.data(), all.size() * sizeof(float));
    return words;
  };
  parallel::relocate(flat, from, to);
  EXPECT_EQ(bits(parallel::in_parameter_order(flat, to)), bits(values));
  EXPECT_EQ(std::count(flat.begin(), flat.end(), 99.0f), 0);
}

// What backward gives is the order of computing: that of the nodes, from the last to the first. So a plan by it stays.
TEST(RebuiltBuckets, StayWhereThePlanFollowsTheOrderOfGradients) {
  for (const char* model : {"mlp", "cnn"}) {
    Problem problem(model);
    problem.config.epochs = 1;
    const RankOutcome outcome = problem.run({});
    EXPECT_EQ(outcome.report->buckets_changed, false);
    problem.config.rebuild_buckets = false;
    const RankOutcome without = problem.run({});
    EXPECT_EQ(without.report->buckets_changed, std::nullopt);
    EXPECT_EQ(without.parameters, outcome.parameters);
  }
}

// A plan in the contrary order waits for all gradients before its first bucket. Parameters, momentum and what a sender
// keeps for later move, so that no bit of any tensor changes.
TEST(RebuiltBuckets, ChangeNoBitOfATensor) {
  for (const bool overlaps : {false, true}) {
    FakeWorld world(3);
    FakeWorld plain_world(3);
    Problem problem = planned("cnn", kOneEach, true);
    problem.config.overlap_forward = overlaps;
    problem.config.weight_decay = 1e-4;
    Problem plain = planned("cnn", kOneEach, false);
    plain.config = problem.config;
    const auto rebuilt = problem.run_ranks(world);
    const auto expected = plain.run_ranks(plain_world);
    expect_sound(rebuilt);
    EXPECT_EQ(rebuilt[0].report->buckets_changed, true);
    EXPECT_EQ(rebuilt[0].report->initial_buckets.tensor_offset, problem.plan.tensor_offset);
    EXPECT_EQ(rebuilt[0].plan.tensor_offset, plain.plan.tensor_offset);
    EXPECT_EQ(rebuilt[0].ordered, expected[0].ordered);
    EXPECT_EQ(rebuilt[0].report->parameters_digest, expected[0].report->parameters_digest);
    // The first step's buckets are in the order of the first plan, all others in the order of gradients.
    const auto reduced = world.reduced();
    const std::size_t buckets = problem.plan.buckets.size();
    ASSERT_EQ(reduced.size(), 14 * buckets);
    for (std::size_t b = 0; b < buckets; ++b) {
      EXPECT_EQ(reduced[b], problem.plan.buckets[b].elements);
      EXPECT_EQ(reduced[buckets + b], plain.plan.buckets[b].elements);
    }
    const auto json = to_results(problem.config, problem.model, rebuilt[0].plan, RunInfo{}, *rebuilt[0].report);
    EXPECT_EQ(json.at("rebuilt_buckets"), nlohmann::json({{"after_step", 1}, {"changed", true}}));
    EXPECT_EQ(json.at("initial_buckets").size(), buckets);
    EXPECT_EQ(json.at("buckets").size(), buckets);
  }
}

TEST(RebuiltBuckets, TakeAlongWhatCodecsLeftOut) {
  for (const CodecPath path : {CodecPath::kGather, CodecPath::kReduce}) {
    for (const Codec codec : {Codec::kOneBit, Codec::kTopK}) {
      Problem problem = planned("mlp-small", kOneEach, true);
      problem.config.codec = {.codec = codec, .path = path};
      problem.config.rate = 0.02;
      problem.config.epochs = 1;
      Problem plain = planned("mlp-small", kOneEach, false);
      plain.config = problem.config;
      FakeWorld world(2);
      FakeWorld plain_world(2);
      const auto rebuilt = problem.run_ranks(world);
      expect_sound(rebuilt);
      EXPECT_EQ(rebuilt[0].ordered, plain.run_ranks(plain_world)[0].ordered) << to_string(codec);
    }
  }
}

TEST(RebuiltBuckets, TakeAlongWhatWasLost) {
  Problem problem = planned("mlp-small", kOneEach, true);
  problem.config.exchange = {AllReduce::kAllToAll, proxy::Missing::kResidual};
  Problem plain = planned("mlp-small", kOneEach, false);
  plain.config = problem.config;
  FakeWorld world(2);
  FakeWorld plain_world(2);
  const std::size_t buckets = problem.plan.buckets.size();
  // All of the first step: any other part would be another tensor's in the other plan.
  world.loses = plain_world.loses = [=](std::uint64_t number, int, int, std::size_t) { return number < buckets; };
  const auto rebuilt = problem.run_ranks(world);
  expect_sound(rebuilt);
  EXPECT_EQ(rebuilt[0].ordered, plain.run_ranks(plain_world)[0].ordered);
}

class MicroBatches : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

// Of the last batch, 20 examples, some ranks have fewer than micro-batches.
TEST_P(MicroBatches, EqualOneBatchAndSendAsOften) {
  const auto& [model, ranks] = GetParam();
  Problem problem(model);
  FakeWorld world(ranks);
  const auto whole = problem.run_ranks(world);
  for (const int parts : {2, 16}) {
    for (const bool overlaps : {false, true}) {
      problem.config.accumulate = parts;
      problem.config.overlap_forward = overlaps;
      FakeWorld again(ranks);
      const auto accumulated = problem.run_ranks(again);
      expect_sound(accumulated);
      EXPECT_LT(largest_difference(accumulated[0].ordered, whole[0].ordered), 1e-4) << parts;
      EXPECT_EQ(accumulated[0].report->images, 640u);
      EXPECT_EQ(accumulated[0].report->steps, 14u);
      EXPECT_NEAR(accumulated[0].report->epochs.back().loss, whole[0].report->epochs.back().loss, 1e-3);
      EXPECT_EQ(again.reduced(), world.reduced());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MicroBatches,
                         ::testing::Combine(::testing::Values("lr", "mlp-small"), ::testing::Values(1, 3)));

TEST(MicroBatches, GoThroughCodecsAndFrontBuckets) {
  Problem problem = planned("mlp-small", kOneEach, false);
  problem.config.codec = {.codec = Codec::kTopK, .topk_fraction = 1};
  problem.config.accumulate = 3;
  problem.config.front_buckets = 1;
  problem.config.overlap_forward = true;
  FakeWorld world(2);
  FakeWorld front(2);
  const auto encoded = problem.run_ranks(world, &front);
  expect_sound(encoded);
  Problem plain("mlp-small");
  FakeWorld plain_world(2);
  EXPECT_LT(largest_difference(encoded[0].ordered, plain.run_ranks(plain_world)[0].ordered), 1e-4);
}

class Zero1 : public ::testing::TestWithParam<int> {};

// The fake sums in rank order either way, so no bit differs.
TEST_P(Zero1, HasTheBitsOfAnOptimiserThatIsWhole) {
  const int ranks = GetParam();
  for (const bool wrongly : {false, true}) {
    Problem problem = planned("cnn", {.first_bytes = 1000, .bytes = 10'000}, wrongly);
    problem.config.weight_decay = 1e-4;
    FakeWorld world(ranks);
    const auto whole = problem.run_ranks(world);
    EXPECT_EQ(whole[0].report->ranks[0].momentum_bytes, problem.plan.parameters() * sizeof(float));
    problem.config.sharding = parallel::Sharding::kZero1;
    BucketCaps caps = problem.plan.caps;
    caps.shards = static_cast<std::size_t>(ranks);
    problem.plan = planned("cnn", caps, wrongly).plan;
    for (const bool overlaps : {false, true}) {
      problem.config.overlap_forward = overlaps;
      FakeWorld sharded_world(ranks);
      const auto sharded = problem.run_ranks(sharded_world);
      expect_sound(sharded);
      EXPECT_EQ(sharded[0].report->buckets_changed, wrongly);
      EXPECT_EQ(sharded[0].ordered, whole[0].ordered) << "rebuilt " << wrongly << ", overlapped " << overlaps;
      EXPECT_TRUE(sharded_world.reduced().empty());
      for (const RankTotals& totals : sharded[0].report->ranks) {
        const double share = static_cast<double>(problem.plan.parameters() * sizeof(float)) / ranks;
        EXPECT_NEAR(static_cast<double>(totals.momentum_bytes), share, 0.01 * share);
        EXPECT_NEAR(totals.train_s, totals.compute_s + totals.exposed_comm_s, 1e-9);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Zero1, ::testing::Values(2, 3));

TEST(Zero1, GoesWithMicroBatchesAndFrontBuckets) {
  const BucketCaps caps{.first_bytes = 1000, .bytes = 10'000, .shards = 2};
  Problem problem = planned("cnn", caps, false);
  problem.config.sharding = parallel::Sharding::kZero1;
  problem.config.accumulate = 2;
  problem.config.front_buckets = 1;
  FakeWorld world(2);
  FakeWorld front(2);
  const auto sharded = problem.run_ranks(world, &front);
  expect_sound(sharded);
  Problem plain("cnn");
  plain.config.accumulate = 2;
  FakeWorld plain_world(2);
  EXPECT_EQ(sharded[0].ordered, plain.run_ranks(plain_world)[0].ordered);
}

TEST(LayerTerms, AreReadAndWritten) {
  parallel::LayerOptions layers;
  ASSERT_TRUE(parallel::parse_layer("moe=tokens:6,experts:4,hidden:8", layers));
  ASSERT_TRUE(parallel::parse_layer("dlrm=tables:3,dim:2,batch:5", layers));
  EXPECT_EQ(parallel::to_text(layers), "moe=experts:4,tokens:6,hidden:8,top-k:2 dlrm=tables:3,dim:2,batch:5");
  for (const char* wrong : {"", "moe", "moe=", "moe=experts:4,tokens:6", "moe=experts:4,tokens:6,hidden:0",
                            "moe=experts:4,tokens:6,hidden:8,", "moe=experts:4,experts:4,tokens:6,hidden:8",
                            "moe=experts:4,tokens:6,hidden:8,dim:2", "moe=experts:4,tokens:-6,hidden:8",
                            "moe=experts:4,tokens:6,hidden:1048577", "dlrm=tables,dim:2,batch:5", "cnn=tables:1"}) {
    parallel::LayerOptions none;
    const auto read = parallel::parse_layer(wrong, none);
    ASSERT_FALSE(read) << wrong;
    EXPECT_THAT(read.error().message, HasSubstr("allowed: moe=experts:N"));
  }
  EXPECT_FALSE(parallel::parse_layer("moe=experts:4,tokens:6,hidden:8", layers)) << "twice";
  EXPECT_EQ(parallel::layer_contradiction(layers, 2), "");
  EXPECT_THAT(parallel::layer_contradiction(layers, 3), HasSubstr("4 experts on 3 ranks"));
  ASSERT_TRUE(layers.moe);
  layers.moe->top_k = 5;
  EXPECT_THAT(parallel::layer_contradiction(layers, 2), HasSubstr("allowed: 1 to 4"));
  layers.moe = parallel::MoeLayer{.experts = 2, .tokens = 1 << 20, .hidden = 1 << 20};
  EXPECT_THAT(parallel::layer_contradiction(layers, 2), HasSubstr("at most 1073741824"));
}

// Two experts on each rank, with room for ceil(6 * 2 / 4) = 3 tokens of each rank; tables 0 and 2 on rank 0.
TEST(LayerTerms, SayHowLargeBlocksAre) {
  parallel::LayerOptions options;
  ASSERT_TRUE(parallel::parse_layer("moe=experts:4,tokens:6,hidden:8", options));
  ASSERT_TRUE(parallel::parse_layer("dlrm=tables:3,dim:2,batch:5", options));
  for (const int rank : {0, 1}) {
    const auto layers = parallel::layer_exchanges(options, rank, 2);
    ASSERT_EQ(layers.size(), 2u);
    EXPECT_EQ(layers[0].comm_name, "train-moe");
    ASSERT_EQ(layers[0].forward.size() + layers[0].backward.size(), 4u);
    EXPECT_THAT(layers[0].forward[0].send, ElementsAre(2u * 3 * 8 * 4, 2u * 3 * 8 * 4));
    ASSERT_EQ(layers[1].forward.size(), 1u);
    const std::size_t own = (rank == 0 ? 2u : 1u) * 5 * 2 * 4;
    EXPECT_THAT(layers[1].forward[0].send, ElementsAre(own, own));
    EXPECT_THAT(layers[1].forward[0].recv, ElementsAre(2u * 5 * 2 * 4, 1u * 5 * 2 * 4));
    EXPECT_EQ(layers[1].backward[0].send, layers[1].forward[0].recv);
  }
}

Problem with_layers() {
  Problem problem("mlp-small");
  EXPECT_TRUE(parallel::parse_layer("moe=experts:4,tokens:6,hidden:8", problem.config.layers));
  EXPECT_TRUE(parallel::parse_layer("dlrm=tables:3,dim:2,batch:5", problem.config.layers));
  return problem;
}

TEST(LayerTraffic, IsExchangedInEveryPassAndChangesNoBit) {
  Problem problem = with_layers();
  Problem plain("mlp-small");
  problem.config.accumulate = plain.config.accumulate = 2;
  for (const int ranks : {2, 4}) {
    FakeWorld world(ranks);
    FakeWorld plain_world(ranks);
    const auto outcomes = problem.run_ranks(world);
    expect_sound(outcomes);
    EXPECT_EQ(outcomes[0].ordered, plain.run_ranks(plain_world)[0].ordered);
    const auto json = to_results(problem.config, problem.model, problem.plan, RunInfo{}, *outcomes[0].report);
    const auto& traffic = json.at("traffic");
    const auto passes = 14u * 2;
    EXPECT_EQ(traffic.at("moe").at("exchanges"), passes * 4);
    EXPECT_EQ(traffic.at("dlrm").at("exchanges"), passes * 2);
    EXPECT_EQ(traffic.at("dlrm").at("communicator"), "train-dlrm");
    const auto others = static_cast<unsigned>(ranks - 1);
    const unsigned experts_each = 4u / static_cast<unsigned>(ranks);
    EXPECT_EQ(traffic.at("moe").at("bytes_sent"),
              passes * 4 * static_cast<unsigned>(ranks) * others * experts_each * 3 * 8 * 4);
    EXPECT_EQ(traffic.at("dlrm").at("bytes_sent"), passes * 2 * others * 3 * 5 * 2 * 4);
    EXPECT_GT(traffic.at("moe").at("exposed_s"), 0.0);
    for (const RankTotals& totals : outcomes[0].report->ranks) {
      EXPECT_NEAR(totals.train_s,
                  totals.compute_s + totals.exposed_comm_s + totals.layers[0].exposed_s + totals.layers[1].exposed_s,
                  1e-9);
    }
    EXPECT_THAT(summary(json), AllOf(HasSubstr("moe all-to-alls"), HasSubstr("dlrm all-to-alls")));
  }
}

// On both ranks and in a forward pass, because a rank of the fake world that ends early is waited for, and its
// gradients written to.
TEST(LayerTraffic, AWrongByteAndABlockOfAnotherTimeAreFound) {
  using Damage = std::function<void(std::span<std::byte>, std::vector<std::byte>&)>;
  const std::vector<Damage> damages{
      [](std::span<std::byte> received, std::vector<std::byte>&) { received[received.size() / 2] ^= std::byte{1}; },
      // What the exchange before had brought.
      [](std::span<std::byte> received, std::vector<std::byte>& before) {
        std::copy(before.begin(), before.end(), received.begin());
      },
      // The other rank's block in place of the own.
      [](std::span<std::byte> received, std::vector<std::byte>&) {
        std::rotate(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(received.size() / 2),
                    received.end());
      }};
  for (const Damage& damage : damages) {
    Problem problem("lr");
    ASSERT_TRUE(parallel::parse_layer("moe=experts:4,tokens:6,hidden:8", problem.config.layers));
    FakeWorld world(2);
    std::vector<std::vector<std::byte>> before(2);
    world.after_exchange = [&](std::uint64_t number, int rank, std::span<std::byte> received) {
      auto& own = before[static_cast<std::size_t>(rank)];
      if (number == 8) damage(received, own);
      own.assign(received.begin(), received.end());
    };
    for (const RankOutcome& rank : problem.run_ranks(world)) {
      ASSERT_FALSE(rank.report);
      EXPECT_THAT(rank.report.error().message, AllOf(HasSubstr("all-to-all 9 of moe"), HasSubstr("wrong bytes")));
    }
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
