#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest tcp(const std::string& name, const std::function<void(Config&)>& change) {
  return {name, [change](Log log) {
            static const SystemClock clock;
            Config config;
            config.socket_ifname = "=lo";
            change(config);
            return tcp::TcpTransport::create({config, clock, std::move(log)});
          }};
}

}  // namespace

std::vector<TransportUnderTest> tcp_under_test() {
  std::vector<TransportUnderTest> all = {
      tcp("tcp", [](Config&) {}),
      tcp("tcp_two_sockets", [](Config& config) { config.tcp_sockets = 2; }),
      // A message that goes ahead of its receive is one chunk, however many sockets there are.
      tcp("tcp_long_ahead",
          [](Config& config) {
            config.tcp_sockets = 3;
            config.tcp_eager_bytes = 1024 * 1024;
          }),
      tcp("tcp_many_small_chunks",
          [](Config& config) {
            config.tcp_sockets = 7;
            config.tcp_eager_bytes = 4096;
            config.tcp_chunk_bytes = 4096;
            config.tcp_notsent_bytes = 4096;
          }),
      tcp("tcp_nothing_ahead", [](Config& config) { config.tcp_eager_bytes = 0; }),
      tcp("tcp_ipv6", [](Config& config) { config.socket_family = "ipv6"; }),
  };
  all.front().cycles = 1000;
  return all;
}

}  // namespace clustar::transport::conformance
