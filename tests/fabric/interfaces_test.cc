// Several NICs of one host are several devices.
#include <gtest/gtest.h>

#include "tests/fabric/two_hosts.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::tests {
namespace {

std::unique_ptr<transport::Transport> tcp_transport(const Config& config, const Clock& clock) {
  return std::move(transport::tcp::TcpTransport::create({config, clock}).value());
}

TEST(Interfaces, SeveralNicsAreSeveralDevices) {
  const TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  ASSERT_TRUE(hosts.add_nic(0, "wire2", "10.78.0.1/24"));
  const SystemClock clock;
  hosts.run_on(0, [&] {
    Config config;
    config.edit<NetworkSettings>()->interfaces = "wire";
    const auto both = tcp_transport(config, clock);
    ASSERT_EQ(both->devices().size(), 2u);
    EXPECT_EQ(both->devices()[0].name, "wire");
    EXPECT_EQ(both->devices()[1].name, "wire2");
    EXPECT_NE(both->devices()[0].guid, both->devices()[1].guid) << "one guid would make them ports of one chip";
    config.edit<NetworkSettings>()->interfaces = "=wire2";
    const auto second = tcp_transport(config, clock);
    ASSERT_EQ(second->devices().size(), 1u);
    EXPECT_EQ(second->devices()[0].name, "wire2");
    config.edit<NetworkSettings>()->interfaces = "";
    EXPECT_EQ(tcp_transport(config, clock)->devices().size(), 2u) << "all but loopback";
  });
}

}  // namespace
}  // namespace clustar::tests
