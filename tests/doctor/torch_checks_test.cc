#include "bench/doctor/torch_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/doctor/torch_probe.h"

namespace clustar::bench::doctor {
namespace {

using ::testing::HasSubstr;

TorchFacts good() {
  return {.asked = "python3",
          .python = "/usr/bin/python3, 3.11.2",
          .torch = "1.13.1",
          .backend = "0.1.0",
          .file = "/opt/clustar/lib/python3/dist-packages/clustar_torch/__init__.py",
          .own_version = "0.1.0"};
}

// The step that failed is the last that is told of.
Check last(const TorchFacts& facts, std::size_t checks) {
  const auto all = torch_checks(facts);
  EXPECT_EQ(all.size(), checks);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) EXPECT_EQ(all[i].outcome, Outcome::kOk) << all[i].name;
  return all.back();
}

TEST(TorchChecks, AllIsWell) {
  const auto checks = torch_checks(good());
  EXPECT_EQ(counts(checks), "0 failed, 0 warnings, 4 ok");
  EXPECT_THAT(to_text(good(), checks), HasSubstr("It can: import clustar_torch, then init_process_group(\"clustar\")"));
}

TEST(TorchChecks, EachStepThatFailsSaysWhatToDo) {
  TorchFacts facts = good();
  facts.python = "";
  facts.why = "exit status 127";
  EXPECT_EQ(last(facts, 1).evidence, "python3: exit status 127");

  facts = good();
  facts.failed = "torch";
  facts.why = "No module named 'torch'";
  EXPECT_THAT(last(facts, 2).fix, HasSubstr("python3-torch, or --python with the Python that has it"));
  facts.failed = "distributed";
  EXPECT_EQ(last(facts, 2).evidence, "1.13.1 has no torch.distributed");

  facts.failed = "missing";
  facts.why = "No module named 'clustar_torch'";
  EXPECT_THAT(last(facts, 3).fix, HasSubstr("libtorch-dev pybind11-dev"));
  facts.beside = "/opt/clustar/lib/python3/dist-packages";
  EXPECT_EQ(last(facts, 3).fix, "export PYTHONPATH=/opt/clustar/lib/python3/dist-packages${PYTHONPATH:+:$PYTHONPATH}");
  facts.failed = "import";
  facts.asked = "/opt/python";
  EXPECT_THAT(last(facts, 3).fix, HasSubstr("-DCLUSTAR_TORCH_PYTHON=/opt/python"));

  facts.failed = "group";
  facts.why = "clustar: transport = tpc, allowed: auto, tcp";
  EXPECT_EQ(last(facts, 4).evidence, facts.why);
}

TEST(TorchChecks, AnotherVersionIsAWarning) {
  TorchFacts facts = good();
  facts.backend = "0.0.9";
  const auto checks = torch_checks(facts);
  EXPECT_EQ(counts(checks), "0 failed, 1 warning, 3 ok");
  EXPECT_THAT(checks[2].evidence, HasSubstr("is version 0.0.9, this command 0.1.0"));
}

// Without Python, and with programs that are none.
TEST(TorchProbe, WhatIsNoPythonIsSaidToBeNone) {
  for (const char* const none : {"/nowhere/python", "true", "false"}) {
    const TorchFacts facts = torch_facts_of(none);
    EXPECT_EQ(facts.python, "") << none;
    EXPECT_TRUE(any_failed(torch_checks(facts))) << none;
  }
}

}  // namespace
}  // namespace clustar::bench::doctor
