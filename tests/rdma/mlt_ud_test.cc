// MLT over verbs UD beyond the suite of transports: who is refused, and a network that loses.
#include <gmock/gmock.h>

#include "mlt/driver/mlt_transport.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/link.h"
#include "transport/base/system_clock.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/io/verbs/settings.h"
#include "transport/io/verbs/verbs_backend.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

namespace driver = mlt::driver;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MltOverUd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = tests::why_no_devices(); !reason.empty()) GTEST_SKIP() << reason;
  }
  static Config config_of(const std::string& interface, const std::string& hca = "") {
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=" + interface;
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<IbSettings>()->hca = hca;
    return config;
  }
  static Result<std::unique_ptr<io::PacketBackend>> ud(const Config& config) {
    return io::verbs::VerbsBackend::create(io::verbs::VerbsBackend::Kind::kUd, config, Log());
  }
  std::unique_ptr<Transport> create(const Config& config, Result<std::unique_ptr<io::PacketBackend>> backend) {
    EXPECT_TRUE(backend) << backend.error().message;
    if (!backend) return nullptr;
    auto made = driver::MltTransport::create({config, clock_}, std::move(*backend));
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }
  std::unique_ptr<Transport> over_ud(const Config& config) { return create(config, ud(config)); }

 private:
  SystemClock clock_;
};

TEST_F(MltOverUd, AnInterfaceWithoutAnRdmaPortIsAnErrorThatNamesThoseWith) {
  const auto refused = ud(config_of("lo"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("127.0.0.1"), HasSubstr("rxe_a port 1"), HasSubstr("10.9.0.2"),
                                             HasSubstr("CLUSTAR_SOCKET_IFNAME"), HasSubstr("CLUSTAR_IO=udp")));
}

TEST_F(MltOverUd, APortThatIsExcludedIsNotOpened) {
  const auto refused = ud(config_of("va", "^=rxe_a"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("10.9.0.1"), HasSubstr("NCCL_IB_HCA = '^=rxe_a'"),
                                             HasSubstr("rxe_b port 1"), Not(HasSubstr("rxe_a port"))));
  EXPECT_TRUE(over_ud(config_of("va", "=rxe_a:1"))->listen(0, {}));
}

// With control connections over the other network ends name their GIDs, and only who is told so believes them.
TEST_F(MltOverUd, ControlConnectionsMayRunOverAnotherNetwork) {
  Config from_config = config_of("va");
  Config to_config = config_of("vb");
  from_config.edit<NetworkSettings>()->control_interfaces = to_config.edit<NetworkSettings>()->control_interfaces =
      "=lo";
  const auto from = over_ud(from_config);
  const auto to = over_ud(to_config);
  Connection connection = connect(*from, *to);
  ASSERT_TRUE(connection.send && connection.recv);
  SendBuffer out(*connection.send, 70'000, 1);
  RecvBuffer in(*connection.recv, 70'000);
  finish({must_recv(*connection.recv, {{in.mr.get(), 0, 70'000, 0}}), must_send(*connection.send, *out.mr, 0, 70'000)});
  EXPECT_TRUE(out.bytes == in.bytes);
}

TEST_F(MltOverUd, WhoRunsOverUdpIsRefusedAndToldTheSetting) {
  const auto ud = over_ud(config_of("va"));
  const auto udp = create(config_of("vb"), io::udp::UdpBackend::create(config_of("vb")));
  const auto by_ud = ud->listen(0, {});
  const auto by_udp = udp->listen(0, {});
  ASSERT_TRUE(by_ud && by_udp);
  const auto to_ud = udp->connect(0, (*by_ud)->handle(), {});
  const auto to_udp = ud->connect(0, (*by_udp)->handle(), {});
  ASSERT_FALSE(to_ud);
  ASSERT_FALSE(to_udp);
  EXPECT_THAT(to_ud.error().message, AllOf(HasSubstr("io is udp here and verbs_ud at"), HasSubstr("CLUSTAR_IO")));
  EXPECT_THAT(to_udp.error().message, AllOf(HasSubstr("io is verbs_ud here and udp at"), HasSubstr("CLUSTAR_IO")));
}

TEST_F(MltOverUd, MessagesAreWholeThoughTheNetworkIsNot) {
  const auto from = over_ud(config_of("va"));
  const auto to = over_ud(config_of("vb"));
  Connection connection = connect(*from, *to);
  ASSERT_TRUE(connection.send && connection.recv);
  const tests::Netem trouble("delay 1ms reorder 20% loss 3% duplicate 3% corrupt 3%");
  for (const std::size_t size : {100ul, 4096ul, 70'000ul, 300'001ul}) {
    SendBuffer out(*connection.send, size, static_cast<unsigned>(size));
    RecvBuffer in(*connection.recv, size);
    finish({must_recv(*connection.recv, {{in.mr.get(), 0, size, 0}}), must_send(*connection.send, *out.mr, 0, size)});
    EXPECT_TRUE(out.bytes == in.bytes) << size;
  }
  EXPECT_THAT(from->summary(), HasSubstr("verbs UD on rxe_a port 1"));
  EXPECT_THAT(to->summary(), HasSubstr("0 from strangers, 0 malformed"));
}

}  // namespace
}  // namespace clustar::transport::conformance
