// Which rank a process is by the variables of mpirun, torchrun and srun.
#include "bench/trainer/launcher_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<LauncherPlace> place(const Variables& variables, const std::string& root = "") {
  return place_by_launcher(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      root);
}

void expect_place(const Variables& variables, const std::string& launcher, int rank, int size) {
  const auto found = place(variables, "h:1");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->launcher, launcher);
  EXPECT_EQ(found->rank, rank);
  EXPECT_EQ(found->size, size);
  EXPECT_EQ(found->root, "h:1");
}

const Variables kSlurm{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};

TEST(LauncherPlace, OfEachLauncherAndOfTheInnermost) {
  expect_place(kSlurm, "srun", 1, 2);
  expect_place({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, "PMI", 0, 3);
  Variables nested = kSlurm;
  nested.insert({{"OMPI_COMM_WORLD_RANK", "7"}, {"OMPI_COMM_WORLD_SIZE", "8"}});
  expect_place(nested, "OpenMPI's mpirun", 7, 8);
  Variables torchrun = kSlurm;
  torchrun.insert({{"RANK", "15"}, {"WORLD_SIZE", "16"}, {"LOCAL_RANK", "3"}, {"TORCHELASTIC_RUN_ID", "none"}});
  expect_place(torchrun, "torchrun", 15, 16);
}

TEST(LauncherPlace, TwoThatContradictEachOtherAreRefused) {
  const auto why = [](const Variables& variables) {
    const auto found = place(variables, "h:1");
    return found ? "accepted, by " + found->launcher : found.error().message;
  };
  const Variables mpirun{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  Variables both = mpirun;
  both.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_THAT(why(both), AllOf(HasSubstr("RANK=0 and WORLD_SIZE=1 (torchrun) contradict OMPI_COMM_WORLD_RANK=1"),
                               HasSubstr("env -u RANK -u WORLD_SIZE")));
  // torchrun's own signs do not tell whether it ran in mpirun or before it.
  both.insert({{"LOCAL_RANK", "0"}, {"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_THAT(why(both), HasSubstr("contradict OMPI_COMM_WORLD_RANK=1"));
  both["RANK"] = "1";
  both["WORLD_SIZE"] = "2";
  EXPECT_EQ(why(both), "accepted, by torchrun");
  Variables by_hand{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  by_hand.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_THAT(why(by_hand), HasSubstr("contradict SLURM_PROCID=1 and SLURM_NTASKS=2 (srun)"));
  Variables pmi = mpirun;
  pmi.insert({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
  EXPECT_THAT(why(pmi), HasSubstr("contradict PMI_RANK=1 and PMI_SIZE=3 (PMI)"));
}

TEST(LauncherPlace, RootIsTheOptionOrMaster) {
  Variables variables = kSlurm;
  EXPECT_THAT(place(variables).error().message, AllOf(HasSubstr("--root"), HasSubstr("MASTER_ADDR"), HasSubstr("-x")));
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_FALSE(place(variables));
  variables["MASTER_PORT"] = "29500";
  EXPECT_EQ(place(variables)->root, "10.0.0.1:29500");
  EXPECT_EQ(place(variables, "a:2")->root, "a:2");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(place(variables)->root, "10.0.0.1:29501");
  variables["MASTER_PORT"] = "65535";
  EXPECT_THAT(place(variables).error().message, AllOf(HasSubstr("MASTER_PORT=65535"), HasSubstr("1 to 65534")));
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_EQ(place(variables)->root, "10.0.0.1:65535");
  for (const char* port : {"0", "65536"}) {
    variables["MASTER_PORT"] = port;
    EXPECT_THAT(place(variables).error().message, HasSubstr("1 to 65535"));
  }
  variables["MASTER_ADDR"] = "fd00::1";
  variables["MASTER_PORT"] = "29500";
  EXPECT_EQ(place(variables)->root, "[fd00::1]:29500");
  variables["MASTER_ADDR"] = "[fd00::1]";
  EXPECT_EQ(place(variables)->root, "[fd00::1]:29500");
  variables["MASTER_PORT"] = "http";
  EXPECT_THAT(place(variables).error().message, HasSubstr("MASTER_PORT='http'"));
}

TEST(LauncherPlace, OneRankNeedsNoRoot) {
  const auto alone = place({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->root, "");
}

TEST(LauncherPlace, ErrorsNameTheVariable) {
  const auto why = [](const Variables& variables) {
    const auto found = place(variables, "h:1");
    return found ? std::string("accepted") : found.error().message;
  };
  EXPECT_THAT(why({}), AllOf(HasSubstr("OMPI_COMM_WORLD_RANK"), HasSubstr("SLURM_PROCID"), HasSubstr("WORLD_SIZE"),
                             HasSubstr("PMI_SIZE"), HasSubstr("--rank")));
  EXPECT_THAT(why({{"RANK", "1"}}), AllOf(HasSubstr("WORLD_SIZE is not"), HasSubstr("torchrun")));
  EXPECT_THAT(why({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK='x'"));
  EXPECT_THAT(why({{"RANK", "1"}, {"WORLD_SIZE", "2 "}}), HasSubstr("WORLD_SIZE='2 '"));
  EXPECT_THAT(why({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK='-1'"));
  EXPECT_THAT(why({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=2 does not exist among WORLD_SIZE=2"));
}

}  // namespace
}  // namespace clustar::bench::trainer
