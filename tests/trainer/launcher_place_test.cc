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
  nested.insert({{"RANK", "15"}, {"WORLD_SIZE", "16"}});
  expect_place(nested, "torchrun", 15, 16);
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
  variables["MASTER_PORT"] = "http";
  EXPECT_THAT(place(variables).error().message, HasSubstr("MASTER_PORT='http'"));
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
