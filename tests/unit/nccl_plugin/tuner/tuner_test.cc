// The tuner and its tables; tuner_source() is this test's own.
#include "nccl_plugin/abi/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdarg>
#include <string>
#include <vector>

#include "nccl_plugin/loss/settings.h"
#include "nccl_plugin/tuner/tuner.h"
#include "nccl_plugin/tuner/tuner_source.h"
#include "transport/base/rng.h"

extern "C" const clustar::nccl_abi::TunerV4 ncclTunerPlugin_v4;
extern "C" const clustar::nccl_abi::TunerV5 ncclTunerPlugin_v5;
extern "C" const clustar::nccl_abi::TunerV6 ncclTunerPlugin_v6;

namespace clustar::nccl_plugin {
namespace {

using nccl_abi::kCostIgnored;
using ::testing::HasSubstr;

std::optional<TunerSource> the_source;  // none: the configuration is wrong
std::string logged;

void log_to_test(int, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  logged = line;
}

LossPolicy policy_of(const std::string& rules) {
  LossSettings config;
  config.rules = rules;
  return LossPolicy::create(config).value();
}

TunerFacts facts_of(std::uint32_t ranks, std::uint32_t nodes, const std::string& name = "") {
  TunerFacts facts;
  facts.comm.ranks = ranks;
  facts.comm.nodes = nodes;
  facts.comm.name = name;
  return facts;
}

constexpr float kGuard = 12345.0f;

// A table of any shape between guards, with costs that differ from each other.
class Table {
 public:
  Table(int algorithms, int protocols)
      : algorithms_(algorithms), protocols_(protocols), cells_(static_cast<std::size_t>(algorithms * protocols + 2)) {
    for (std::size_t i = 0; i < cells_.size(); ++i) cells_[i] = 1.0f + static_cast<float>(i);
    cells_.front() = cells_.back() = kGuard;
  }

  float* data() { return cells_.data() + 1; }
  CostTable view() { return {{data(), cells_.size() - 2}, algorithms_, protocols_}; }
  float& operator()(int algorithm, int protocol) { return data()[algorithm * protocols_ + protocol]; }
  bool guarded() const { return cells_.front() == kGuard && cells_.back() == kGuard; }
  const std::vector<float>& cells() const { return cells_; }

 private:
  int algorithms_;
  int protocols_;
  std::vector<float> cells_;
};

constexpr int kAlgorithms = 7;
constexpr int kProtocols = 3;

// Which entries may still be chosen, "algorithm/protocol".
std::vector<std::string> choices(Table& table) {
  std::vector<std::string> all;
  for (int a = 0; a < kAlgorithms; ++a) {
    for (int p = 0; p < kProtocols; ++p) {
      if (table(a, p) >= 0) all.push_back(std::to_string(a) + "/" + std::to_string(p));
    }
  }
  return all;
}

std::vector<std::string> tuned(const TunerFacts& facts, const LossPolicy& policy, int function, std::uint64_t bytes) {
  Table table(kAlgorithms, kProtocols);
  tune(facts, policy, function, bytes, table.view());
  EXPECT_TRUE(table.guarded());
  return choices(table);
}

const std::vector<std::string> kRingSimple{"1/2"};
const std::vector<std::string> kAll = [] {
  Table table(kAlgorithms, kProtocols);
  return choices(table);
}();
const std::vector<std::string> kAllButLL128{"0/0", "0/2", "1/0", "1/2", "2/0", "2/2", "3/0",
                                            "3/2", "4/0", "4/2", "5/0", "5/2", "6/0", "6/2"};

// CollNet where the planner takes it to be faster, and not elsewhere, unless NCCL has nothing else.
TEST(Tuner, TakesTheCollectiveNetworkByThePlanner) {
  using namespace nccl_abi;
  TunerFacts facts = facts_of(4, 4);
  facts.ordered_lines = true;
  facts.comm.collnet_wins = std::uint64_t{1} << 20;
  const auto table_of = [&](int function, std::uint64_t bytes) {
    Table table(kAlgorithms, kProtocols);
    tune(facts, LossPolicy(), function, bytes, table.view());
    EXPECT_TRUE(table.guarded());
    return table;
  };
  Table untouched(kAlgorithms, kProtocols);
  for (const std::uint64_t bytes : {1ull << 20, (2ull << 20) - 1}) {
    Table table = table_of(kAllReduce, bytes);
    EXPECT_EQ(table(kCollnetChain, kSimple), 0);
    EXPECT_EQ(table(kCollnetDirect, kSimple), 0);
    EXPECT_EQ(table(kRing, kSimple), untouched(kRing, kSimple));
  }
  for (const std::uint64_t bytes : {1ull, (1ull << 20) - 1, 2ull << 20, 1ull << 63}) {
    Table table = table_of(kAllReduce, bytes);
    EXPECT_EQ(table(kCollnetChain, kSimple), kCostIgnored) << bytes;
    EXPECT_EQ(table(kRing, kSimple), untouched(kRing, kSimple));
  }
  EXPECT_EQ(table_of(kReduceScatter, 1 << 20).cells(), untouched.cells());
  EXPECT_EQ(table_of(kAllReduce, 0).cells(), untouched.cells());
  // What NCCL ignores stays so; what is alone stays as well.
  for (const bool wins : {true, false}) {
    Table table(kAlgorithms, kProtocols);
    table(kCollnetDirect, kSimple) = kCostIgnored;
    for (int a = 0; a < kAlgorithms; ++a) {
      for (int p = 0; p < kProtocols; ++p) {
        if (a != kCollnetDirect && a != kCollnetChain) table(a, p) = kCostIgnored;
      }
    }
    tune(facts, LossPolicy(), kAllReduce, wins ? 1 << 20 : 1, table.view());
    EXPECT_EQ(table(kCollnetDirect, kSimple), kCostIgnored);
    EXPECT_GE(table(kCollnetChain, kSimple), 0);
  }
  // Where not each rank knows, or the user does not want it.
  for (const auto change : {0, 1, 2}) {
    TunerFacts other = facts;
    if (change == 0) other.comm.ranks = 8;
    if (change == 1) other.by_planner = false;
    if (change == 2) other.comm.collnet_wins.reset();
    Table table(kAlgorithms, kProtocols);
    tune(other, LossPolicy(), kAllReduce, 1 << 20, table.view());
    EXPECT_EQ(table.cells(), untouched.cells()) << change;
  }
  // A collective that may lose goes by the ring, whatever the planner says.
  facts.comm.collnet_wins = ~std::uint64_t{0};
  Table table(kAlgorithms, kProtocols);
  tune(facts, policy_of("comm=*"), kAllReduce, 1 << 30, table.view());
  EXPECT_EQ(choices(table), kRingSimple);
}

TEST(Tuner, ForbidsLL128WhereLinesAreNotOrdered) {
  TunerFacts facts = facts_of(4, 4);
  EXPECT_EQ(tuned(facts, LossPolicy(), nccl_abi::kAllReduce, 1 << 30), kAllButLL128);
  EXPECT_EQ(tuned(facts, LossPolicy(), nccl_abi::kBroadcast, 0), kAllButLL128);
  facts.steer = false;
  EXPECT_EQ(tuned(facts, policy_of("comm=*"), nccl_abi::kAllReduce, 1 << 30), kAllButLL128);
  facts.ordered_lines = true;
  EXPECT_EQ(tuned(facts, policy_of("comm=*"), nccl_abi::kAllReduce, 1 << 30).size(), 21u);
  // Even if nothing is left.
  facts.ordered_lines = false;
  Table table(kAlgorithms, kProtocols);
  for (int a = 0; a < kAlgorithms; ++a) table(a, nccl_abi::kLL) = table(a, nccl_abi::kSimple) = kCostIgnored;
  tune(facts, LossPolicy(), nccl_abi::kAllReduce, 1, table.view());
  EXPECT_TRUE(choices(table).empty());
}

TEST(Tuner, SteersWhatMayLoseWhereItIsWorthIt) {
  const LossPolicy policy = policy_of("comm=dp*");
  const TunerFacts facts = facts_of(4, 4, "dp0");
  const std::uint64_t least = worthwhile_bytes(4);
  EXPECT_EQ(least, 4u * 2 * 65536);
  for (const int function : {nccl_abi::kAllReduce, nccl_abi::kReduceScatter}) {
    EXPECT_EQ(tuned(facts, policy, function, least), kRingSimple);
    EXPECT_EQ(tuned(facts, policy, function, std::uint64_t{1} << 40), kRingSimple);
    EXPECT_EQ(tuned(facts, policy, function, least - 1), kAllButLL128);
    EXPECT_EQ(tuned(facts_of(4, 4, "tp0"), policy, function, least), kAllButLL128);
    EXPECT_EQ(tuned(facts_of(4, 1, "dp0"), policy, function, least), kAll) << "one node";
    EXPECT_EQ(tuned(facts_of(0, 0, "dp0"), policy, function, least), kAllButLL128) << "sizes are not known";
  }
  for (const int function : {int{nccl_abi::kAllGather}, int{nccl_abi::kBroadcast}, int{nccl_abi::kReduce}, -1, 99}) {
    EXPECT_EQ(tuned(facts, policy, function, least), kAllButLL128) << function;
  }
  EXPECT_EQ(tuned(facts, policy_of("p=0;p=0.1"), nccl_abi::kAllReduce, least), kAllButLL128);
}

TEST(Tuner, RevivesNothingAndNeedsRingSimple) {
  const LossPolicy policy = policy_of("p=0.01");
  Table without(kAlgorithms, kProtocols);
  without(nccl_abi::kRing, nccl_abi::kSimple) = kCostIgnored;
  tune(facts_of(4, 2), policy, nccl_abi::kAllReduce, 1 << 30, without.view());
  EXPECT_EQ(choices(without).size(), kAllButLL128.size() - 1);
  Rng rng(7);
  for (int round = 0; round < 20'000; ++round) {
    Table table(static_cast<int>(rng.below(9)), static_cast<int>(rng.below(6)));
    const int cells = static_cast<int>(table.cells().size()) - 2;
    for (int i = 0; i < cells; ++i) {
      if (rng.chance(0.3)) table.data()[i] = kCostIgnored;
    }
    const std::vector<float> before = table.cells();
    TunerFacts facts = facts_of(static_cast<std::uint32_t>(rng.below(9)), static_cast<std::uint32_t>(rng.below(5)));
    facts.ordered_lines = rng.chance(0.5);
    tune(facts, policy, static_cast<int>(rng.below(12)), rng.below(4 << 20), table.view());
    ASSERT_TRUE(table.guarded());
    for (std::size_t i = 0; i < before.size(); ++i) {
      ASSERT_TRUE(table.cells()[i] == before[i] || table.cells()[i] == kCostIgnored);
    }
  }
}

TEST(Tuner, OutsideTheTableThereIsNothing) {
  Table table(2, 3);
  const CostTable view = table.view();
  EXPECT_EQ(view.at(1, 2), table.data() + 5);
  for (const auto& [a, p] : {std::pair{-1, 0}, {0, -1}, {2, 0}, {0, 3}, {99, 99}}) EXPECT_EQ(view.at(a, p), nullptr);
  const CostTable lying{{table.data(), 3}, 2, 3};
  EXPECT_EQ(lying.at(1, 0), nullptr);
}

class TunerTables : public ::testing::Test {
 protected:
  void SetUp() override {
    the_source.emplace();
    the_source->policy = policy_of("comm=dp*;class=160-167");
    the_source->registry = &registry_;
    logged.clear();
  }
  void TearDown() override { the_source.reset(); }

  CommRegistry registry_;
};

// One call of v5 or v6 on a rank, as choices.
template <class Plugin>
std::vector<std::string> one_call(const Plugin& plugin, std::uint64_t comm_id, std::size_t ranks, std::size_t nodes,
                                  int registered, int function = nccl_abi::kAllReduce, std::size_t bytes = 1 << 24) {
  void* context = nullptr;
  nccl_abi::NvlDomainInfo domain{};
  std::array<double, 64> constants{};
  EXPECT_EQ(plugin.init(&context, comm_id, ranks, nodes, nullptr, &domain, constants.data()), nccl_abi::kSuccess);
  EXPECT_EQ(constants, (std::array<double, 64>{}));
  Table table(kAlgorithms, kProtocols);
  int channels = 77;
  EXPECT_EQ(plugin.getCollInfo(context, function, bytes, 1, reinterpret_cast<float**>(table.data()), kAlgorithms,
                               kProtocols, registered, &channels),
            nccl_abi::kSuccess);
  EXPECT_EQ(channels, 77);
  EXPECT_TRUE(table.guarded());
  EXPECT_EQ(plugin.finalize(context), nccl_abi::kSuccess);
  return choices(table);
}

TEST_F(TunerTables, NameAndClassComeFromTheRegistry) {
  CommFacts named;
  named.comm_id = 5;
  named.name = "dp_outer";
  registry_.add_profiler(named);
  registry_.add_net(6, 163);
  registry_.add_net(7, 200);
  for (const int registered : {0, 1}) {
    EXPECT_EQ(one_call(ncclTunerPlugin_v5, 5, 8, 4, registered), kRingSimple);
    EXPECT_EQ(one_call(ncclTunerPlugin_v6, 5, 8, 4, registered), kRingSimple);
    EXPECT_EQ(one_call(ncclTunerPlugin_v6, 6, 8, 4, registered), kRingSimple);
    EXPECT_EQ(one_call(ncclTunerPlugin_v6, 7, 8, 4, registered), kAllButLL128);
    EXPECT_EQ(one_call(ncclTunerPlugin_v6, 8, 8, 4, registered), kAllButLL128);
  }
}

// What may differ between ranks changes no answer: rank, registered buffers, who registered first.
TEST_F(TunerTables, EveryRankGetsTheSameAnswer) {
  Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t nodes = 1 + rng.below(4), ranks = nodes * (1 + rng.below(3));
    const int function = static_cast<int>(rng.below(6));
    const std::size_t bytes = std::size_t{1} << rng.below(26);
    const int traffic_class = rng.chance(0.5) ? 160 : -1;
    std::vector<std::string> first;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CommRegistry own;
      the_source->registry = &own;
      CommFacts facts;
      facts.comm_id = 9;
      facts.rank = static_cast<int>(rank);
      facts.ranks = static_cast<std::uint32_t>(ranks);
      facts.name = round % 2 == 0 ? "dp" : "tp";
      if (rank % 2 == 0) own.add_net(9, traffic_class);
      own.add_profiler(facts);
      if (rank % 2 == 1) own.add_net(9, traffic_class);
      const int registered = static_cast<int>(rng.below(2));
      const auto answer = one_call(ncclTunerPlugin_v6, 9, ranks, nodes, registered, function, bytes);
      if (rank == 0) first = answer;
      ASSERT_EQ(answer, first);
    }
  }
}

TEST_F(TunerTables, V4KnowsSizesOnly) {
  the_source->policy = policy_of("comm=dp*; comm=,ranks=4");
  for (const std::size_t ranks : {std::size_t{4}, std::size_t{8}}) {
    void* context = nullptr;
    ASSERT_EQ(ncclTunerPlugin_v4.init(ranks, 4, nullptr, &context), nccl_abi::kSuccess);
    Table table(kAlgorithms, kProtocols);
    EXPECT_EQ(
        ncclTunerPlugin_v4.getCollInfo(context, nccl_abi::kAllReduce, 1 << 24, 1,
                                       reinterpret_cast<float**>(table.data()), kAlgorithms, kProtocols, 0, nullptr),
        nccl_abi::kSuccess);
    EXPECT_EQ(choices(table), ranks == 4 ? kRingSimple : kAllButLL128);
    EXPECT_EQ(ncclTunerPlugin_v4.destroy(context), nccl_abi::kSuccess);
  }
}

TEST_F(TunerTables, TheBoundaryHolds) {
  EXPECT_STREQ(ncclTunerPlugin_v4.name, "clustar");
  EXPECT_EQ(ncclTunerPlugin_v6.getChunkSize, nullptr);
  void* context = nullptr;
  EXPECT_EQ(ncclTunerPlugin_v5.init(nullptr, 1, 4, 4, nullptr, nullptr, nullptr), nccl_abi::kInvalidArgument);
  EXPECT_EQ(ncclTunerPlugin_v5.init(&context, 1, 0, 0, nullptr, nullptr, nullptr), nccl_abi::kInvalidArgument);
  EXPECT_EQ(ncclTunerPlugin_v5.init(&context, 1, 2, 3, nullptr, nullptr, nullptr), nccl_abi::kInvalidArgument);
  float cost = 1;
  EXPECT_EQ(ncclTunerPlugin_v5.getCollInfo(nullptr, 4, 1, 1, reinterpret_cast<float**>(&cost), 1, 1, 0, nullptr),
            nccl_abi::kInvalidArgument);
  EXPECT_EQ(ncclTunerPlugin_v5.finalize(nullptr), nccl_abi::kSuccess);
  ASSERT_EQ(ncclTunerPlugin_v5.init(&context, 1, 4, 4, nullptr, nullptr, nullptr), nccl_abi::kSuccess);
  EXPECT_EQ(ncclTunerPlugin_v5.getCollInfo(context, 4, 1, 1, nullptr, 7, 3, 0, nullptr), nccl_abi::kInvalidArgument);
  EXPECT_EQ(ncclTunerPlugin_v5.getCollInfo(context, 4, 1, 1, reinterpret_cast<float**>(&cost), -1, 3, 0, nullptr),
            nccl_abi::kInvalidArgument);
  ncclTunerPlugin_v5.finalize(context);
  // A wrong setting fails the communicator and says why.
  the_source.reset();
  context = nullptr;
  EXPECT_EQ(ncclTunerPlugin_v6.init(&context, 1, 4, 4, log_to_test, nullptr, nullptr), nccl_abi::kInvalidArgument);
  EXPECT_EQ(context, nullptr);
  EXPECT_THAT(logged, HasSubstr("TUNER/clustar: 100% wrong"));
}

}  // namespace

Result<std::shared_ptr<const TunerSource>> tuner_source(nccl_abi::DebugLogger) {
  if (!the_source) return fail(ErrorCode::kInvalidArgument, "100% wrong");
  return std::make_shared<const TunerSource>(*the_source);
}

}  // namespace clustar::nccl_plugin
