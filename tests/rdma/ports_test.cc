// Which ports are used, and what is said of the others: of the two SoftRoCE devices.
#include "transport/verbs/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "nccl_plugin/settings/all_settings.h"
#include "tests/rdma/link.h"

namespace clustar::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transport::verbs::Settings;

class RdmaPorts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_devices(); !reason.empty()) GTEST_SKIP() << reason;
  }
  static transport::verbs::PortSearch search(const std::map<std::string, std::string>& environment) {
    const auto config = load_settings(environment);
    EXPECT_TRUE(config) << config.error().message;
    auto found = transport::verbs::search_ports(Settings(*config));
    EXPECT_TRUE(found) << found.error().message;
    return found ? *found : transport::verbs::PortSearch{};
  }
};

TEST_F(RdmaPorts, BothAreFoundWithTheirIpv4Gid) {
  const auto found = search({});
  ASSERT_EQ(found.usable.size(), 2u);
  EXPECT_THAT(found.refused, ElementsAre());
  for (const auto& port : found.usable) {
    EXPECT_EQ(port.gid.index, 1u);
    EXPECT_EQ(port.warning, "");
    EXPECT_GT(port.max_queue_pairs, 0);
  }
  const auto devices = transport::verbs::device_properties(found.usable);
  EXPECT_EQ(devices[0].port, 1);
  EXPECT_EQ(devices[0].pci_path, "") << "not on PCI";
}

TEST_F(RdmaPorts, TheFilterChooses) {
  const auto found = search({{"NCCL_IB_HCA", "=rxe_b:1"}});
  ASSERT_EQ(found.usable.size(), 1u);
  EXPECT_EQ(found.usable[0].info.device, "rxe_b");
  EXPECT_EQ(found.usable[0].gid.gid.to_string(), "10.9.0.2");
}

TEST_F(RdmaPorts, AWrongIndexIsRefusedAndAnUnwiseOneWarnsOf) {
  const auto absent = search({{"CLUSTAR_IB_GID_INDEX", "9"}});
  EXPECT_THAT(absent.usable, ElementsAre());
  ASSERT_EQ(absent.refused.size(), 2u);
  EXPECT_THAT(absent.refused[0], AllOf(HasSubstr("rxe_"), HasSubstr("port 1"), HasSubstr("9")));
  const auto link_local = search({{"CLUSTAR_IB_GID_INDEX", "0"}});
  ASSERT_EQ(link_local.usable.size(), 2u);
  EXPECT_NE(link_local.usable[0].warning, "");
}

TEST_F(RdmaPorts, APortThatIsDownIsRefusedWithItsState) {
  const LinkDown down;
  const auto config = load_settings({});
  const auto none = transport::verbs::usable_ports(Settings(*config));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(none.error().message, AllOf(HasSubstr("rxe_a port 1: port is down"), HasSubstr("rxe_b port 1: port is")));
}

}  // namespace
}  // namespace clustar::tests
