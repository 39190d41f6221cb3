#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mlt/driver/settings.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/io/verbs/settings.h"

namespace clustar {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Environment = std::map<std::string, std::string>;

std::string ib_error(const Environment& environment) {
  const auto config = load_settings(environment);
  return config ? "no error" : config.error().message;
}

// What describe() says of a key: "value (source)".
std::string shown(const Environment& environment, const std::string& key) {
  const auto config = load_settings(environment);
  if (!config) return config.error().message;
  for (const std::string& line : config->describe()) {
    if (line.starts_with(key + " = ")) return line.substr(key.size() + 3);
  }
  return "no such key";
}

TEST(ConfigIb, DefaultsAreMostlyThoseOfNccl) {
  const Config config = load_settings({}).value();
  EXPECT_EQ(config.get<MltSettings>().io, "udp");
  EXPECT_FALSE(config.get<IbSettings>().disable);
  EXPECT_EQ(config.get<IbSettings>().hca, "");
  EXPECT_EQ(config.get<IbSettings>().gid_index, -1);
  EXPECT_EQ(config.get<IbSettings>().traffic_class, -1);
  EXPECT_EQ(config.get<IbSettings>().service_level, -1);
  EXPECT_EQ(config.get<IbSettings>().pkey_index, 0);
  EXPECT_EQ(config.get<IbSettings>().timeout, 20);
  EXPECT_EQ(config.get<IbSettings>().retry_count, 6) << "7 is forever on rdma_rxe";
  EXPECT_EQ(config.get<IbSettings>().queue_pairs, 2);
  EXPECT_EQ(config.get<IbSettings>().ar_threshold, 8192u);
  EXPECT_TRUE(config.get<IbSettings>().merge_nics);
  EXPECT_THAT(config.not_taken(), IsEmpty());
}

TEST(ConfigIb, OurKeysAreTyped) {
  const auto config = load_settings({{"CLUSTAR_IB_HCA", "=mlx5_0:1"},
                                     {"CLUSTAR_IB_GID_INDEX", "255"},
                                     {"CLUSTAR_IB_ADDR_FAMILY", "ipv6"},
                                     {"CLUSTAR_IB_PKEY_INDEX", "1"},
                                     {"CLUSTAR_IB_TC", "104"},
                                     {"CLUSTAR_IB_SL", "15"},
                                     {"CLUSTAR_IB_TIMEOUT", "22"},
                                     {"CLUSTAR_IB_RETRY_CNT", "0"},
                                     {"CLUSTAR_IB_QPS", "8"},
                                     {"CLUSTAR_IB_MTU", "1024"},
                                     {"CLUSTAR_IB_EAGER_BYTES", "0"},
                                     {"CLUSTAR_IB_STRIPE_BYTES", "64K"},
                                     {"CLUSTAR_IB_RELAXED_ORDERING", "off"},
                                     {"CLUSTAR_IB_ADAPTIVE_ROUTING", "on"},
                                     {"CLUSTAR_IB_AR_THRESHOLD", "1M"},
                                     {"CLUSTAR_IB_FORCE_FLUSH", "1"},
                                     {"CLUSTAR_IB_MERGE_NICS", "0"},
                                     {"CLUSTAR_IB_DISABLE", "1"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->get<IbSettings>().hca, "=mlx5_0:1");
  EXPECT_EQ(config->get<IbSettings>().gid_index, 255);
  EXPECT_EQ(config->get<IbSettings>().addr_family, "ipv6");
  EXPECT_EQ(config->get<IbSettings>().pkey_index, 1);
  EXPECT_EQ(config->get<IbSettings>().traffic_class, 104);
  EXPECT_EQ(config->get<IbSettings>().service_level, 15);
  EXPECT_EQ(config->get<IbSettings>().timeout, 22);
  EXPECT_EQ(config->get<IbSettings>().retry_count, 0);
  EXPECT_EQ(config->get<IbSettings>().queue_pairs, 8);
  EXPECT_EQ(config->get<IbSettings>().mtu, 1024u);
  EXPECT_EQ(config->get<IbSettings>().eager_bytes, 0u);
  EXPECT_EQ(config->get<IbSettings>().stripe_bytes, 65536u);
  EXPECT_EQ(config->get<IbSettings>().relaxed_ordering, "off");
  EXPECT_EQ(config->get<IbSettings>().adaptive_routing, "on");
  EXPECT_EQ(config->get<IbSettings>().ar_threshold, 1048576u);
  EXPECT_TRUE(config->get<IbSettings>().force_flush);
  EXPECT_FALSE(config->get<IbSettings>().merge_nics);
  EXPECT_TRUE(config->get<IbSettings>().disable);
}

TEST(ConfigIb, OurBadValuesAreErrorsThatSayWhatIsAllowed) {
  const struct {
    const char* name;
    std::vector<const char*> values;
    const char* allowed;
  } kBad[] = {
      {"CLUSTAR_IO", {"", "rdma", "UDP"}, "udp | verbs_ud | verbs_uc | ofi | dpdk"},
      {"CLUSTAR_IB_GID_INDEX", {"-2", "256", "auto", ""}, "-1 to 255"},
      {"CLUSTAR_IB_TC", {"256", "-2", "1.0"}, "-1 to 255"},
      {"CLUSTAR_IB_SL", {"16", "-2"}, "-1 to 15"},
      {"CLUSTAR_IB_TIMEOUT", {"0", "23"}, "1 to 22"},
      {"CLUSTAR_IB_RETRY_CNT", {"8", "-1"}, "0 to 7"},
      {"CLUSTAR_IB_QPS", {"0", "9"}, "1 to 8"},
      {"CLUSTAR_IB_MTU", {"9000", "", "512 "}, "256 | 512"},
      {"CLUSTAR_IB_STRIPE_BYTES", {"0", "4095"}, "bytes from 4096"},
      {"CLUSTAR_IB_MERGE_NICS", {"2", "yes"}, "0 | 1"},
  };
  for (const auto& bad : kBad) {
    for (const char* value : bad.values) {
      EXPECT_THAT(ib_error({{bad.name, value}}), AllOf(HasSubstr(bad.name), HasSubstr(bad.allowed))) << value;
    }
  }
}

TEST(ConfigIb, NcclsVariablesCountUnlessOursAreSet) {
  const struct {
    const char* theirs;
    const char* value;
    const char* key;
    const char* text;  // of the key then
    const char* ours;  // variable
    const char* own;   // its value
  } kPairs[] = {
      {"NCCL_IB_DISABLE", "1", "ib_disable", "1", "CLUSTAR_IB_DISABLE", "0"},
      {"NCCL_IB_HCA", "^=mlx5_3:1", "ib_hca", "^=mlx5_3:1", "CLUSTAR_IB_HCA", "mlx5_0"},
      {"NCCL_IB_GID_INDEX", "3", "ib_gid_index", "3", "CLUSTAR_IB_GID_INDEX", "-1"},
      {"NCCL_IB_ADDR_FAMILY", "AF_INET6", "ib_addr_family", "ipv6", "CLUSTAR_IB_ADDR_FAMILY", "any"},
      {"NCCL_IB_PKEY", "0x2", "ib_pkey_index", "2", "CLUSTAR_IB_PKEY_INDEX", "0"},
      {"NCCL_IB_TC", "0x68", "ib_tc", "104", "CLUSTAR_IB_TC", "0"},
      {"NCCL_IB_SL", "3", "ib_sl", "3", "CLUSTAR_IB_SL", "0"},
      {"NCCL_IB_TIMEOUT", "18", "ib_timeout", "18", "CLUSTAR_IB_TIMEOUT", "14"},
      {"NCCL_IB_RETRY_CNT", "3", "ib_retry_cnt", "3", "CLUSTAR_IB_RETRY_CNT", "7"},
      {"NCCL_IB_QPS_PER_CONNECTION", "4", "ib_qps", "4", "CLUSTAR_IB_QPS", "1"},
      {"NCCL_IB_PCI_RELAXED_ORDERING", "0", "ib_relaxed_ordering", "off", "CLUSTAR_IB_RELAXED_ORDERING", "auto"},
      {"NCCL_IB_ADAPTIVE_ROUTING", "1", "ib_adaptive_routing", "on", "CLUSTAR_IB_ADAPTIVE_ROUTING", "off"},
      {"NCCL_IB_AR_THRESHOLD", "1048576", "ib_ar_threshold", "1048576", "CLUSTAR_IB_AR_THRESHOLD", "8192"},
      {"NCCL_IB_MERGE_NICS", "0", "ib_merge_nics", "0", "CLUSTAR_IB_MERGE_NICS", "1"},
  };
  for (const auto& pair : kPairs) {
    EXPECT_EQ(shown({{pair.theirs, pair.value}}, pair.key), std::string(pair.text) + " (" + pair.theirs + ")");
    EXPECT_EQ(shown({{pair.theirs, pair.value}, {pair.ours, pair.own}}, pair.key),
              std::string(pair.own) + " (environment)");
  }
}

TEST(ConfigIb, WhatMeansUnsetToNcclLeavesTheDefault) {
  const Environment unset{{"NCCL_IB_GID_INDEX", "-1"}, {"NCCL_IB_TC", "-1"},
                          {"NCCL_IB_SL", "-1"},        {"NCCL_IB_HCA", ""},
                          {"NCCL_IB_TIMEOUT", ""},     {"NCCL_IB_ADAPTIVE_ROUTING", "-2"},
                          {"NCCL_SOCKET_IFNAME", ""},  {"NCCL_IB_ROCE_VERSION_NUM", "2"}};
  const Config config = load_settings(unset).value();
  EXPECT_THAT(config.describe(), Each(HasSubstr("(default)")));
  EXPECT_THAT(config.not_taken(), IsEmpty());
}

TEST(ConfigIb, NcclsValuesThatWeCannotTakeAreNamedAndDoNotCount) {
  const Environment bad{
      {"NCCL_IB_TIMEOUT", "23"},  {"NCCL_IB_QPS_PER_CONNECTION", "16"}, {"NCCL_IB_TC", "7x"},
      {"NCCL_IB_SL", "16"},       {"NCCL_IB_ADDR_FAMILY", "ipv6"},      {"NCCL_IB_PCI_RELAXED_ORDERING", "3"},
      {"NCCL_IB_DISABLE", "yes"}, {"NCCL_IB_ROCE_VERSION_NUM", "1"},    {"NCCL_SOCKET_FAMILY", "inet"}};
  const auto config = load_settings(bad);
  ASSERT_TRUE(config) << "NCCL goes on with such a value, so its environment must not stop a job";
  EXPECT_EQ(config->find("ib_timeout"), nullptr);
  EXPECT_EQ(config->find("socket_family"), nullptr);
  EXPECT_EQ(config->not_taken().size(), bad.size());
  for (const auto& [name, value] : bad) {
    EXPECT_THAT(config->not_taken(), Contains(AllOf(HasSubstr(name + " = '" + value + "' is ignored"))));
  }
  EXPECT_THAT(config->not_taken(), Contains(HasSubstr("a number from 1 to 22")));
}

TEST(ConfigIb, EveryVariableOfNcclsLeadsToAKeyOfOurs) {
  int variables = 0;
  for (const SettingTable* table : all_settings()) {
    for (const NcclVariable& variable : table->nccl()) {
      ++variables;
      if (variable.setting != nullptr) {
        EXPECT_NE(shown({}, variable.setting), "no such key") << variable.name;
      }
    }
  }
  EXPECT_EQ(variables, 18);
}

TEST(ConfigIb, WhatNobodyReadsIsSaid) {
  const Config config = load_settings({{"NCCL_IB_FIFO_TC", "3"}, {"NCCL_IB_TC", "3"}, {"NCCL_DEBUG", "INFO"}}).value();
  EXPECT_THAT(config.describe(), Not(Contains(HasSubstr("NCCL_DEBUG"))));
  EXPECT_THAT(config.describe(), Not(Contains(HasSubstr("NCCL_IB_TC is set"))));
  EXPECT_THAT(config.describe(), Contains(HasSubstr("NCCL_IB_FIFO_TC is set")));
}

TEST(ConfigIb, AnotherDatapathIsForMltOnly) {
  EXPECT_THAT(ib_error({{"CLUSTAR_IO", "verbs_ud"}}), AllOf(HasSubstr("mlt"), HasSubstr("CLUSTAR_TRANSPORT=mlt")));
  EXPECT_THAT(ib_error({{"CLUSTAR_IO", "verbs_ud"}, {"CLUSTAR_TRANSPORT", "tcp"}}), HasSubstr("is tcp"));
  EXPECT_TRUE(load_settings({{"CLUSTAR_IO", "udp"}, {"CLUSTAR_TRANSPORT", "tcp"}}));
  const Environment good{{"CLUSTAR_IO", "verbs_uc"}, {"CLUSTAR_TRANSPORT", "mlt"}};
  EXPECT_EQ(load_settings(good).value().get<MltSettings>().io, "verbs_uc");
  Environment forbidden = good;
  forbidden["NCCL_IB_DISABLE"] = "1";
  EXPECT_THAT(ib_error(forbidden), AllOf(HasSubstr("NCCL_IB_DISABLE"), HasSubstr("CLUSTAR_IB_DISABLE=0")));
  forbidden["CLUSTAR_IB_DISABLE"] = "0";
  EXPECT_TRUE(load_settings(forbidden));
}

}  // namespace
}  // namespace clustar
