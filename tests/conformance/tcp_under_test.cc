#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"
#include "transport/tcp/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest tcp(const std::string& name, const std::function<void(Config&)>& change) {
  return {name, [change](Log log) {
            static const SystemClock clock;
            Config config;
            config.edit<NetworkSettings>()->interfaces = "=lo";
            change(config);
            return tcp::TcpTransport::create({config, clock, std::move(log)});
          }};
}

}  // namespace

std::vector<TransportUnderTest> tcp_under_test() {
  std::vector<TransportUnderTest> all = {
      tcp("tcp", [](Config&) {}),
      tcp("tcp_two_sockets", [](Config& config) { config.edit<TcpSettings>()->sockets = 2; }),
      // A message that goes ahead of its receive is one chunk, however many sockets there are.
      tcp("tcp_long_ahead",
          [](Config& config) {
            config.edit<TcpSettings>()->sockets = 3;
            config.edit<TcpSettings>()->eager_bytes = 1024 * 1024;
          }),
      tcp("tcp_many_small_chunks",
          [](Config& config) {
            config.edit<TcpSettings>()->sockets = 7;
            config.edit<TcpSettings>()->eager_bytes = 4096;
            config.edit<TcpSettings>()->chunk_bytes = 4096;
            config.edit<TcpSettings>()->notsent_bytes = 4096;
          }),
      tcp("tcp_nothing_ahead", [](Config& config) { config.edit<TcpSettings>()->eager_bytes = 0; }),
      tcp("tcp_ipv6", [](Config& config) { config.edit<NetworkSettings>()->family_name = "ipv6"; }),
  };
  all.front().cycles = 1000;
  return all;
}

}  // namespace clustar::transport::conformance
