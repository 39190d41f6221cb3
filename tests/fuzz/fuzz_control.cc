// Strangers and liars at both ends of the coordinator's protocol: whatever bytes come, at whatever time, nothing
// crashes, and what one side understood it can say again.
#include <cstdint>
#include <vector>

#include "coflow/control/core/agent.h"
#include "coflow/control/core/coordinator.h"
#include "coflow/control/core/session.h"
#include "tests/fuzz/input.h"

namespace {

using namespace clustar;
using namespace clustar::coflow::control;

void check(const Message& message) {
  const auto again = parse(serialize(message));
  fuzz::require(again.has_value() && *again == message);
}

}  // namespace

// The first byte: which links there are. Then, again and again: a link, how many bytes, these; and time.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  TimePoint now(std::chrono::seconds(1));
  CoordinatorOptions options;
  options.most_agents = 3;
  options.most_classes = 8;
  options.policy = input.byte() % 2 == 0 ? OrderPolicy::kTurns : OrderPolicy::kBssi;
  options.topology = {{{"a", "leaf"}}, {{"leaf", 1000}}};
  Coordinator coordinator(options, now);
  std::vector<Session> sessions;
  for (int i = 0; i < 4; ++i) sessions.emplace_back(Session::Side::kCoordinator, SessionKey{}, Nonce16{});
  Session to_agent(Session::Side::kAgent, SessionKey{}, Nonce16{});
  Agent agent({}, 1, now);
  agent.on_timeout(now);
  agent.on_connected(now);
  while (!input.empty()) {
    const std::uint32_t where = input.byte() % 5;
    std::vector<std::byte> bytes(input.byte());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(input.byte());
    Session& session = where < 4 ? sessions[where] : to_agent;
    (void)session.on_bytes(bytes);
    while (const auto message = session.next()) {
      check(*message);
      if (where < 4) {
        coordinator.on_message(where, *message, now);
      } else {
        agent.on_message(*message, now);
      }
    }
    if (where < 4 && session.failed()) coordinator.on_closed(where, now);
    now += std::chrono::milliseconds(input.byte());
    coordinator.on_timeout(now);
    agent.on_timeout(now);
    while (const auto out = coordinator.poll()) check(out->message);
    while (agent.poll()) {
    }
    std::uint32_t place = 0;
    for (const auto& one : coordinator.classes(now)) {
      fuzz::require(one.place == 0 || one.place > place);
      place = one.place;
    }
  }
  return 0;
}
