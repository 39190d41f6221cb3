// Whom a peer may have us send to.
#include "transport/io/control_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/net/settings.h"

namespace clustar::transport::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

net::Endpoint host(int last, std::uint16_t port = 0) {
  return {false, port, {std::byte{10}, {}, {}, static_cast<std::byte>(last)}};
}

TEST(ControlNetwork, PacketsGoToTheHostOfTheControlConnection) {
  EXPECT_EQ(data_host(host(1, 99), std::nullopt, false)->address, host(1).address);
  EXPECT_TRUE(data_host(host(1), host(1), false));
  const auto refused = data_host(host(1), host(2), false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRemote);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("10.0.0.1"), HasSubstr("10.0.0.2"), HasSubstr("CLUSTAR_CONTROL_IFNAME")));
  net::Endpoint other_family = host(1);
  other_family.ipv6 = true;
  EXPECT_FALSE(data_host(host(1), other_family, false));
}

TEST(ControlNetwork, WithANetworkOfTheirOwnPeersNameTheirs) {
  EXPECT_EQ(data_host(host(1), host(2), true)->address, host(2).address);
  const auto refused = data_host(host(1), std::nullopt, true);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("on all ranks, or on none"));
}

TEST(ControlNetwork, TheSettingNamesInterfaces) {
  Config config;
  EXPECT_EQ(control_address(config, host(7))->address, host(7).address);
  config.edit<NetworkSettings>()->control_interfaces = "=lo";
  EXPECT_EQ(control_address(config, host(7))->address[0], std::byte{127});
  config.edit<NetworkSettings>()->control_interfaces = "=none-such";
  const auto refused = control_address(config, host(7));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("CLUSTAR_CONTROL_IFNAME==none-such"));
}

}  // namespace
}  // namespace clustar::transport::io
