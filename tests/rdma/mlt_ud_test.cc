// MLT over verbs UD beyond the suite of transports: who is refused, and a network that loses.
#include <gmock/gmock.h>

#include <functional>

#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/udp_device.h"
#include "mlt/driver/verbs_device.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/link.h"
#include "transport/base/system_clock.h"

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
  static driver::OpenDevice ud_device(const std::string& hca = "") {
    Config config;
    config.ib_hca = hca;
    return std::bind_front(driver::open_verbs_ud_device, config);
  }
  std::unique_ptr<Transport> create(const std::string& interface, driver::OpenDevice open) {
    Config config;
    config.socket_ifname = "=" + interface;
    config.socket_family = "ipv4";
    auto made = driver::MltTransport::create({config, clock_}, std::move(open));
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }

 private:
  SystemClock clock_;
};

TEST_F(MltOverUd, AnInterfaceWithoutAnRdmaPortIsAnErrorThatNamesThoseWith) {
  const auto transport = create("lo", ud_device());
  const auto listener = transport->listen(0, {});
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(listener.error().message, AllOf(HasSubstr("127.0.0.1"), HasSubstr("rxe_a port 1"), HasSubstr("10.9.0.2"),
                                              HasSubstr("CLUSTAR_SOCKET_IFNAME"), HasSubstr("CLUSTAR_IO=udp")));
}

TEST_F(MltOverUd, APortThatIsExcludedIsNotOpened) {
  const auto transport = create("va", ud_device("^=rxe_a"));
  const auto listener = transport->listen(0, {});
  ASSERT_FALSE(listener);
  EXPECT_THAT(listener.error().message, AllOf(HasSubstr("10.9.0.1"), HasSubstr("NCCL_IB_HCA = '^=rxe_a'"),
                                              HasSubstr("rxe_b port 1"), Not(HasSubstr("rxe_a port"))));
  EXPECT_TRUE(create("va", ud_device("=rxe_a:1"))->listen(0, {}));
}

TEST_F(MltOverUd, WhoRunsOverUdpIsRefusedAndToldTheSetting) {
  const auto ud = create("va", ud_device());
  const auto udp = create("vb", driver::open_udp_device);
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
  const auto from = create("va", ud_device());
  const auto to = create("vb", ud_device());
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
