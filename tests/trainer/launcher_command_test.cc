// `clustar train --launcher env`: ranks that find their place in the variables of torchrun, mpirun or srun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/proxy/bootstrap.h"
#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of what is started from now on.
void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// Whatever started the tests, and the test before.
class TrainByLauncher : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
                             "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "MASTER_ADDR", "MASTER_PORT"}) {
      unsetenv(name);
    }
  }
};

const Words kByLauncher{"train", "--launcher", "env", "--collective", "paraexpress", "--model", "lr", "--examples",
                        "200",   "--epochs",   "1"};

TEST_F(TrainByLauncher, RanksFindEachOther) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  const std::size_t colon = root->rfind(':');
  set("MASTER_ADDR", root->substr(0, colon));
  set("MASTER_PORT", root->substr(colon + 1));
  set("OMPI_COMM_WORLD_SIZE", "2");
  const TemporaryDirectory folder;
  set("OMPI_COMM_WORLD_RANK", "1");
  Command second(kByLauncher);
  set("OMPI_COMM_WORLD_RANK", "0");
  const Outcome first = run_clustar(plus(kByLauncher, {"--json", folder.file("r.json")}));
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("rank 0 of 2, by OpenMPI's mpirun"));
  const Outcome other = second.wait();
  EXPECT_EQ(other.status, 0) << other.err;
  const nlohmann::json results = folder.read_json("r.json")["results"];
  const nlohmann::json& result = results.is_array() ? results.at(0) : results;
  EXPECT_EQ(result["ranks"], 2);
  EXPECT_EQ(result["replicas_identical"], true);
}

TEST_F(TrainByLauncher, OneRankNeedsNoRoot) {
  set("RANK", "0");
  set("WORLD_SIZE", "1");
  const Outcome alone = run_clustar(kByLauncher);
  EXPECT_EQ(alone.status, 0) << alone.err;
}

TEST_F(TrainByLauncher, SaysWhatIsMissing) {
  const auto refused = [](const Words& words) {
    const Outcome outcome = run_clustar(words);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refused(kByLauncher), AllOf(HasSubstr("no launcher"), HasSubstr("SLURM_PROCID")));
  set("SLURM_PROCID", "0");
  set("SLURM_NTASKS", "2");
  EXPECT_THAT(refused(kByLauncher), AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("--root")));
  EXPECT_THAT(refused(plus(kByLauncher, {"--root", "nowhere"})), HasSubstr("HOST:PORT"));
  EXPECT_THAT(refused(plus(kByLauncher, {"--rank", "0"})), HasSubstr("--rank"));
  EXPECT_THAT(refused({"train", "--launcher", "mpirun"}), HasSubstr("env"));
  set("SLURM_NTASKS", "1000");
  EXPECT_THAT(refused(plus(kByLauncher, {"--root", "127.0.0.1:9"})), HasSubstr("srun says 1000 ranks"));
}

}  // namespace
}  // namespace clustar::bench::trainer
