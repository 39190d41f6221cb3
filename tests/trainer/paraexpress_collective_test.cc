// ParaExpress's collectives as the trainer calls them: ranks as threads, over the real transport on loopback.
#include "bench/trainer/paraexpress_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "tests/trainer/on_ranks.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::HasSubstr;

using RankWork = std::function<Result<void>(int rank, ParaexpressCollective& collective)>;

// The errors by rank; "" where there was none.
std::vector<std::string> on_ranks(int ranks, PlanChoice plan, const RankWork& work) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  return tests::on_ranks(ranks, [&](int rank) -> Result<void> {
    auto bootstrap = proxy::Bootstrap::join({.rank = rank, .size = ranks, .root = *root});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    auto collective = ParaexpressCollective::create(
        **bootstrap, {.plan = {.plan = plan}, .comm_id = 7, .stall_timeout = std::chrono::seconds(20)});
    if (!collective) return tl::unexpected(collective.error());
    if (auto ok = work(rank, **collective); !ok) return ok;
    return (*collective)->close();
  });
}

// Whole numbers, so that the order of a sum does not matter.
TEST(ParaexpressCollective, SumsPartsOfMappedMemory) {
  for (const PlanChoice plan :
       {PlanChoice::kAuto, PlanChoice::kDirect, PlanChoice::kRing, PlanChoice::kDoubleTree, PlanChoice::kServer}) {
    const auto errors = on_ranks(3, plan, [](int rank, ParaexpressCollective& collective) -> Result<void> {
      constexpr std::size_t kElements = 100'001;
      constexpr std::size_t kFirst = 1000;
      std::vector<float> values(kElements, static_cast<float>(rank + 1));
      const Buffer mapped = collective.map(values.data(), values.size() * sizeof(float));
      // Two at a time, as gradient buckets are.
      const auto left = collective.all_reduce(mapped, kFirst, Precision::kFloat32, {}, nullptr);
      const auto right = collective.all_reduce(mapped.at(kFirst * sizeof(float)), kElements - kFirst - 1,
                                               Precision::kFloat32, {}, nullptr);
      for (const auto& pending : {left.get(), right.get()}) {
        const auto outcome = pending->wait();
        if (!outcome) return tl::unexpected(outcome.error());
        EXPECT_GT(outcome->seconds, 0);
      }
      for (std::size_t i = 0; i + 1 < kElements; ++i) {
        if (values[i] != 6) return fail(ErrorCode::kInternal, "element " + std::to_string(i) + " is wrong");
      }
      EXPECT_EQ(values.back(), static_cast<float>(rank + 1)) << "was of neither";
      EXPECT_GT(collective.traffic()->bytes_sent, 0u);
      return {};
    });
    EXPECT_THAT(errors, ::testing::Each(std::string())) << to_string(plan);
  }
}

TEST(ParaexpressCollective, GathersFromElsewhereAndInPlace) {
  const auto errors = on_ranks(3, PlanChoice::kAuto, [](int rank, ParaexpressCollective& collective) -> Result<void> {
    constexpr std::size_t kBytes = 4099;
    std::vector<std::byte> own(kBytes, static_cast<std::byte>(rank + 1));
    std::vector<std::byte> all(3 * kBytes);
    const Buffer mine = collective.map(own.data(), own.size());
    const Buffer together = collective.map(all.data(), all.size());
    const auto place = static_cast<std::size_t>(rank) * kBytes;
    for (const bool in_place : {false, true}) {
      std::fill(all.begin(), all.end(), std::byte{0});
      if (in_place) std::memcpy(all.data() + place, own.data(), kBytes);
      const auto outcome = collective.all_gather(in_place ? together.at(place) : mine, together, kBytes, {})->wait();
      if (!outcome) return tl::unexpected(outcome.error());
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != static_cast<std::byte>(i / kBytes + 1)) return fail(ErrorCode::kInternal, "a byte is wrong");
      }
    }
    return {};
  });
  EXPECT_THAT(errors, ::testing::Each(std::string()));
}

TEST(ParaexpressCollective, MemoryOfADeviceIsRefused) {
  const auto errors = on_ranks(2, PlanChoice::kAuto, [](int, ParaexpressCollective& collective) -> Result<void> {
    std::byte somewhere{};
    const auto outcome = collective.all_reduce({nullptr, &somewhere}, 1, Precision::kFloat32, {}, nullptr)->wait();
    return outcome ? Result<void>() : tl::unexpected(outcome.error());
  });
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("work on host memory")));
}

TEST(ParaexpressCollective, AnAbortEndsTheOthersToo) {
  const auto errors = on_ranks(3, PlanChoice::kRing, [](int rank, ParaexpressCollective& collective) -> Result<void> {
    std::vector<float> values(1000);
    const Buffer mapped = collective.map(values.data(), values.size() * sizeof(float));
    if (rank == 1) collective.abort();
    const auto outcome = collective.all_reduce(mapped, values.size(), Precision::kFloat32, {}, nullptr)->wait();
    return outcome ? Result<void>() : tl::unexpected(outcome.error());
  });
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("rank 1")));
}

}  // namespace
}  // namespace clustar::bench::trainer
