// Hosts that fit each other, and each way in which they do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/doctor/nccl_report.h"

namespace clustar::bench::doctor {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json results_of(const std::string& host) {
  return {{"host", host},
          {"uses_clustar", true},
          {"verdict", "NCCL would use clustar"},
          {"plugin", {{"build_id", "abc"}}},
          {"version", "0.1.0"},
          {"transport", "tcp"},
          {"settings", {{"loss_tolerance", {{"value", "0.01"}}}, {"socket_ifname", {{"value", "eth0"}}}}},
          {"variables", {{"NCCL_PROTO", {{"value", "^LL128"}}}, {"NCCL_DEBUG", {{"value", "INFO"}}}}},
          {"checks", json::array()}};
}

// Two hosts of which the second is changed.
std::vector<Check> compared(const std::function<void(json&)>& change) {
  json second = results_of("b");
  change(second);
  return compare({{.host = "a", .json = results_of("a").dump()}, {.host = "b", .json = second.dump()}},
                 {"CLUSTAR_LOSS_TOLERANCE"});
}

void expect_of(const std::vector<Check>& checks, const std::string& name, Outcome outcome,
               const std::string& evidence) {
  for (const Check& one : checks) {
    if (one.name != name) continue;
    EXPECT_EQ(to_string(one.outcome), std::string(to_string(outcome))) << one.evidence;
    EXPECT_THAT(one.evidence, HasSubstr(evidence));
    EXPECT_EQ(one.fix.empty(), outcome == Outcome::kOk) << name;
    return;
  }
  ADD_FAILURE() << "there is no check '" << name << "'";
}

TEST(NcclCompare, HostsThatAreAlikeFit) {
  const auto checks = compared([](json&) {});
  for (const Check& one : checks) EXPECT_EQ(one.outcome, Outcome::kOk) << one.name << ": " << one.evidence;
  expect_of(checks, "transport", Outcome::kOk, "tcp on all");
}

TEST(NcclCompare, WhatRanksNeedAlike) {
  expect_of(compared([](json& b) { b["transport"] = "mlt"; }), "transport", Outcome::kFailed, "'mlt' on b; 'tcp' on a");
  expect_of(compared([](json& b) { b["uses_clustar"] = false; }), "plugin", Outcome::kFailed,
            "'another network' on b; 'clustar' on a");
  expect_of(compared([](json& b) { b["version"] = "0.2.0"; }), "version", Outcome::kFailed, "'0.2.0' on b");
  expect_of(compared([](json& b) { b["plugin"]["build_id"] = "d"; }), "build", Outcome::kWarning, "'d' on b");
  expect_of(compared([](json& b) { b["settings"]["loss_tolerance"]["value"] = "0.02"; }), "loss_tolerance",
            Outcome::kFailed, "'0.01' on a; '0.02' on b");
  expect_of(compared([](json& b) { b["settings"]["socket_ifname"]["value"] = "ib0"; }), "socket_ifname",
            Outcome::kWarning, "'ib0' on b");
  expect_of(compared([](json& b) { b["variables"].erase("NCCL_PROTO"); }), "NCCL_PROTO", Outcome::kFailed,
            "nothing on b; '^LL128' on a");
  expect_of(compared([](json& b) { b["variables"]["NCCL_IB_TC"]["value"] = "106"; }), "NCCL_IB_TC", Outcome::kWarning,
            "nothing on a; '106' on b");
}

TEST(NcclCompare, WhatBelongsToOneHostMayDiffer) {
  for (const Check& one : compared([](json& b) {
         b["variables"]["NCCL_DEBUG"]["value"] = "WARN";
         b["variables"]["CLUSTAR_SOCKET_IFNAME"]["value"] = "eth0";
       })) {
    EXPECT_EQ(one.outcome, Outcome::kOk) << one.name << ": " << one.evidence;
  }
}

TEST(NcclCompare, WhatFailsOnOneHostIsSaid) {
  expect_of(compared([](json& b) {
              b["checks"] = {{{"name", "glibc"}, {"outcome", "failed"}, {"evidence", "2.31 is here"}},
                             {{"name", "NCCL_NET"}, {"outcome", "warning"}, {"evidence", "not set"}}};
            }),
            "b", Outcome::kFailed, "glibc: 2.31 is here");
}

TEST(NcclCompare, AHostWithoutReportFails) {
  const auto checks = compare({{.host = "a", .json = results_of("a").dump()},
                               {.host = "b", .failure = "no report: exit status 255"},
                               {.host = "c", .json = "[]"}},
                              {});
  expect_of(checks, "b", Outcome::kFailed, "exit status 255");
  expect_of(checks, "c", Outcome::kFailed, "cannot be read");
  expect_of(checks, "a", Outcome::kOk, "NCCL would use clustar");
}

}  // namespace
}  // namespace clustar::bench::doctor
