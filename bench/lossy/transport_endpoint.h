// Waist 1: clustar's own TCP, and MLT.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bench/lossy/arm_transport.h"
#include "bench/lossy/endpoint.h"
#include "transport/base/system_clock.h"

namespace clustar::bench::lossy {

class TransportEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> create(const Terms& terms, bool sends);

  Result<std::vector<std::string>> listen(const std::string& own_address) override;
  Result<void> accept(SteadyClock::time_point deadline) override;
  Result<void> connect(const std::string& where, int index, SteadyClock::time_point deadline) override;
  std::span<std::byte> memory(int peer, int slot) override;
  Result<void> post(int peer, int slot, std::uint32_t round) override;
  Result<void> progress(std::vector<Ended>& ended) override;
  // MLT: in ppoll on the packets' sockets, 0.5 ms at most (0.2 ms at the receiver), because the core's own timers are
  // not seen from here. While packets come it does not listen for the first 0.15 ms, so that it is not woken for each.
  // clustar TCP: 50 us.
  void sleep() override;
  Result<nlohmann::json> facts() override;

 private:
  struct Message {
    int slot = 0;
    std::uint32_t round = 0;
    transport::Request* request = nullptr;  // null: not taken yet
  };
  // In this order: channels use the memory and end before it.
  struct Channel {
    std::vector<std::byte> memory;
    std::unique_ptr<transport::SendChannel> send;
    std::unique_ptr<transport::RecvChannel> receive;
    std::unique_ptr<transport::Mr> mr;
    std::deque<Message> messages;
  };

  TransportEndpoint(const Terms& terms, bool sends);
  Result<void> ready(Channel& channel);
  Result<void> start(Channel& channel, Message& message);

  Terms terms_;
  bool sends_;
  SystemClock clock_;
  ArmTransport made_;
  bool traffic_ = false;  // when it last slept
  std::vector<std::unique_ptr<transport::Listener>> listeners_;
  std::vector<Channel> channels_;
};

}  // namespace clustar::bench::lossy
