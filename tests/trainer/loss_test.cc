// Losses that the plugin reports: read, added up, checked against the ledger, and shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/trainer/loss_report.h"
#include "bench/trainer/trainer.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

clustarTotals_v1 g_totals;  // of the fake plugin; `size` unused
std::uint64_t g_gather_phase = 0;

int get_totals(clustarTotals_v1* out) {
  if (out->size != sizeof *out) return CLUSTAR_EINVAL;
  *out = g_totals;
  out->size = sizeof *out;
  return CLUSTAR_OK;
}

int get_reason(std::uint32_t index, const char** name, std::uint64_t* messages) {
  if (index > 1) return CLUSTAR_ENOTFOUND;
  *name = index == 0 ? "lossy" : "gather-phase";
  *messages = index == 0 ? g_totals.tolerant_messages : g_gather_phase;
  return CLUSTAR_OK;
}

clustarApi_v1_t fake_api() {
  clustarApi_v1_t api{};
  api.size = sizeof api;
  api.getTotals = get_totals;
  api.getReason = get_reason;
  return api;
}

RankTotals lost(std::uint64_t missing, std::uint64_t eligible) {
  RankTotals rank;
  rank.loss.known = true;
  rank.loss.missing_bytes = missing;
  rank.loss.eligible_bytes = eligible;
  return rank;
}

TEST(LossMeter, CountsFromItsOwnStart) {
  const clustarApi_v1_t api = fake_api();
  g_totals = {0, 1000, 10, 500, 7, 6, 5};
  g_gather_phase = 3;
  const LossMeter meter(&api);
  g_totals = {0, 3000, 15, 1500, 17, 15, 12};
  g_gather_phase = 8;
  const LossCounts counts = meter.read();
  EXPECT_TRUE(counts.known);
  EXPECT_EQ(counts.delivered_bytes, 2000u);
  EXPECT_EQ(counts.missing_bytes, 5u);
  EXPECT_EQ(counts.eligible_bytes, 1000u);
  EXPECT_EQ(counts.sent_messages, 10u);
  EXPECT_EQ(counts.identified_messages, 9u);
  EXPECT_EQ(counts.tolerant_messages, 7u);
  EXPECT_STREQ(counts.reasons[1].name, "gather-phase");
  EXPECT_EQ(counts.reasons[1].messages, 5u);
  EXPECT_STREQ(counts.reasons[2].name, "");
}

TEST(LossMeter, WithoutTheApiNothingIsKnown) { EXPECT_FALSE(LossMeter(nullptr).read().known); }

TEST(LossLedger, HoldsOnEachRank) {
  EXPECT_EQ(ledger_breach({lost(0, 0), lost(10, 1000)}, 10'000), "");
  EXPECT_EQ(ledger_breach({RankTotals{}}, 0), "");  // unknown
  // The sum of both is within the bound, and yet one is not.
  const std::string breach = ledger_breach({lost(0, 5000), lost(11, 1000)}, 10'000);
  EXPECT_THAT(breach, HasSubstr("rank 1 11 bytes are missing of 1000"));
  EXPECT_THAT(breach, HasSubstr("at most 10 (1 %)"));
  EXPECT_NE(ledger_breach({lost(1, 1000)}, 0), "") << "nobody opted in";
}

TEST(LossLedger, HoldsForEachCollective) {
  RankTotals rank = lost(1, 1000);
  rank.loss.worst_charge = 0.0099;
  EXPECT_EQ(ledger_breach({rank}, 10'000), "");
  rank.loss.worst_charge = 0.0101;
  EXPECT_THAT(ledger_breach({lost(0, 0), rank}, 10'000), HasSubstr("rank 1 one collective lost 0.010100"));
}

TEST(LossReport, OneRankThatDoesNotTellMakesTheSumUnknown) {
  const json both = loss_json(std::vector<RankTotals>{lost(3, 100), lost(4, 200)});
  EXPECT_EQ(both["missing_bytes"], 7);
  EXPECT_EQ(both["eligible_bytes"], 300);
  EXPECT_EQ(both["reliable_reasons"], json::object());
  const json unknown = loss_json(std::vector<RankTotals>{lost(3, 100), RankTotals{}});
  for (const auto& [key, value] : unknown.items()) EXPECT_TRUE(value.is_null()) << key;
}

TEST(LossReport, RowsForPeople) {
  json results{{"transport", nullptr}, {"missing_bytes", 0}};
  EXPECT_TRUE(loss_rows(results).empty());
  results["transport"] = json::object();
  results["missing_bytes"] = nullptr;
  EXPECT_THAT(loss_rows(results).front().second, HasSubstr("n/a"));
  RankTotals rank = lost(25, 1000);
  rank.loss.tolerant_messages = 4;
  rank.loss.reasons[0] = {"warm-up", 12};
  results.update(loss_json(std::vector<RankTotals>{rank}));
  const auto rows = loss_rows(results);
  EXPECT_THAT(rows[0].second, HasSubstr("25 bytes of 1000 eligible (2.500 %)"));
  EXPECT_THAT(rows[1].second, HasSubstr("4 might lose"));
  EXPECT_EQ(rows[2].second, "warm-up 12");
}

}  // namespace
}  // namespace clustar::bench::trainer
