// The transport over libfabric whose end closes while messages lie unread in its endpoint, which it reads to the end
// before libfabric's objects go.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libfabric_shim/rdm/ofi_transport.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

constexpr int kConnections = 8;
constexpr int kAhead = 24;  // of a connection; fewer than may be under way
constexpr std::size_t kSmall = 4096;
constexpr std::size_t kAnnounced = 512 << 10;

struct ClosingCase {
  const char* name;
  const char* provider;
  const char* progress;
};
void PrintTo(const ClosingCase& each, std::ostream* out) { *out << each.name; }

class OfiClosing : public ::testing::TestWithParam<ClosingCase> {
 protected:
  static std::unique_ptr<Transport> end() {
    static const SystemClock clock;
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    config.edit<OfiSettings>()->provider = GetParam().provider;
    config.edit<OfiSettings>()->progress = GetParam().progress;
    auto made = ofi::OfiTransport::create({config, clock, Log{}});
    return made ? std::move(*made) : nullptr;
  }
};

// Without receives nothing is waited for, and all is left to the end of the endpoint; with them the channels look, too.
void close_unread(std::unique_ptr<Transport> from, std::unique_ptr<Transport> to, bool with_receives) {
  std::vector<Connection> connections;
  std::vector<std::unique_ptr<SendBuffer>> sources;
  std::vector<std::unique_ptr<RecvBuffer>> targets;
  std::vector<Request*> sends;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(connect(*from, *to));
    const Connection& connection = connections.back();
    sources.push_back(std::make_unique<SendBuffer>(*connection.send, kAnnounced, i));
    targets.push_back(std::make_unique<RecvBuffer>(*connection.recv, kAnnounced));
  }
  // The receiver looks once: its receives are told, and what comes for them stays where it is.
  for (int i = 0; with_receives && i < kConnections; ++i) {
    must_recv(*connections[i].recv, {{targets[i]->mr.get(), 0, kAnnounced, 1}});
  }
  for (int i = 0; i < kConnections; ++i) {
    for (int message = 0; message < kAhead; ++message) {
      sends.push_back(must_send(*connections[i].send, *sources[i]->mr, 0, kSmall));
    }
    sends.push_back(must_send(*connections[i].send, *sources[i]->mr, 0, kAnnounced, 1));
  }
  const auto look = [&] {
    for (Request*& send : sends) {
      if (send == nullptr) continue;
      const auto progress = send->test();
      if (!progress || progress->done) send = nullptr;
    }
  };
  for (int i = 0; i < 200; ++i) look();
  // The sender goes on meanwhile, as another process would.
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    while (!stop.load()) look();
  });
  for (Connection& connection : connections) connection.recv.reset();
  for (auto& target : targets) {
    target->mr.reset();
    std::ranges::fill(target->bytes, std::byte{0x5a});
  }
  to.reset();
  for (auto& target : targets) {
    EXPECT_TRUE(std::ranges::all_of(target->bytes, [](std::byte byte) { return byte == std::byte{0x5a}; }));
  }
  stop = true;
  sender.join();
  // Whatever had not ended fails, and the sender's end closes as well.
  EXPECT_TRUE(poll_until([&] {
    look();
    return std::ranges::all_of(sends, [](const Request* send) { return send == nullptr; });
  }));
  for (auto& source : sources) source->mr.reset();
  connections.clear();
}

TEST_P(OfiClosing, UnreadMessagesAreReadAndGoNowhere) {
  for (const bool with_receives : {false, true}) {
    auto from = end();
    auto to = end();
    if (!from || !to) GTEST_SKIP() << "libfabric has no such provider here";
    close_unread(std::move(from), std::move(to), with_receives);
  }
}

// Not "shm": two of its endpoints in one process share one mapping, which goes with the first of them.
INSTANTIATE_TEST_SUITE_P(Providers, OfiClosing,
                         ::testing::Values(ClosingCase{"tcp_manual", "tcp;ofi_rxm", "manual"},
                                           ClosingCase{"tcp_auto", "tcp;ofi_rxm", "auto"}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace clustar::transport::conformance
