// `clustar doctor gdr` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/gdr/machine_tree.h"
#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kDoctor = std::string(CLUSTAR_EXECUTABLE) + " doctor ";

TEST(DoctorCommand, OnThisMachineItSaysWhatIsThere) {
  const Outcome outcome = run_command(kDoctor + "gdr");
  EXPECT_THAT(outcome.status, ::testing::AnyOf(0, 1));
  EXPECT_THAT(outcome.text, HasSubstr("GPUDirect RDMA: "));
}

TEST(DoctorCommand, ACopiedTreeWithoutGpuIsFine) {
  const MachineTree tree("bare");
  const Outcome outcome =
      run_command(kDoctor + "gdr --sysfs " + tree.sysfs().string() + " --procfs " + tree.procfs().string());
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("Linux 6.1.0-31-amd64"), HasSubstr("Nothing to do: no GPU.")));
}

TEST(DoctorCommand, JsonAndStatusOfAGpuThatHasNone) {
  const MachineTree tree("vm");
  const std::string file = temp_path("doctor", ".json");
  const Outcome outcome = run_command(kDoctor + "gdr --all --sysfs " + tree.sysfs().string() + " --json " + file);
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("Linux unknown"), HasSubstr("NCCL_TOPO_FILE")));
  std::ifstream in(file);
  const auto document = nlohmann::json::parse(in);
  EXPECT_EQ(document["command"], "doctor gdr");
  EXPECT_EQ(document["results"]["verdict"], "missing");
  EXPECT_EQ(document["results"]["pairs"].size(), 6u);
  const auto& checks = document["results"]["checks"];
  ASSERT_EQ(checks[0]["name"], "GPU 0000:00:05.0") << checks;
  EXPECT_EQ(checks[0]["outcome"], "failed");
  EXPECT_NE(checks[0]["fix"].get<std::string>().find("NCCL_TOPO_FILE"), std::string::npos) << checks[0];
  EXPECT_GE(document["results"]["fail"], 1);
  std::filesystem::remove(file);
}

TEST(DoctorCommand, NcclsVariablesCount) {
  const MachineTree tree("vm");
  const Outcome outcome = run_command("NCCL_NET_GDR_LEVEL=phb " + kDoctor + "gdr --sysfs " + tree.sysfs().string());
  EXPECT_THAT(outcome.text, HasSubstr("NCCL_NET_GDR_LEVEL='phb' is no level"));
}

TEST(DoctorCommand, JsonOnStandardOutputIsAlone) {
  const MachineTree tree("bare");
  const Outcome outcome =
      run_command("(" + kDoctor + "gdr --sysfs " + tree.sysfs().string() + " --json - 2>/dev/null)");
  EXPECT_FALSE(nlohmann::json::parse(outcome.text, nullptr, false).is_discarded()) << outcome.text;
}

TEST(DoctorCommand, WrongUsageIsTwo) {
  for (const char* arguments : {"", "gpus", "gdr --sysfs /nowhere", "gdr --sysfs ''", "gdr --sysfs /",
                                "gdr --procfs /proc", "gdr --json /nowhere/x.json"}) {
    EXPECT_EQ(run_command(kDoctor + arguments).status, 2) << arguments;
  }
  for (const char* arguments : {"", "gid"}) {
    EXPECT_THAT(run_command(kDoctor + arguments).text,
                AllOf(HasSubstr("clustar doctor: "),
                      HasSubstr("; allowed: gdr, nccl, torch, dpdk\nExample: clustar doctor gdr\n")));
  }
  EXPECT_THAT(run_command(kDoctor + "gid").text, HasSubstr("there is no command 'gid'"));
  EXPECT_THAT(run_command(kDoctor + "--help").text, HasSubstr("Is GPUDirect RDMA on"));
  const Outcome help = run_command(kDoctor + "gdr --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.text, HasSubstr("Example: sudo --preserve-env=NCCL_NET_GDR_LEVEL clustar doctor gdr"));
}

}  // namespace
}  // namespace clustar::tests
