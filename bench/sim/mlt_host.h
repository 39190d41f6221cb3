// The MLT core on a simulated host: what a driver does between mlt::Endpoint and a NIC, and nothing else.
#pragma once

#include <cstdint>
#include <optional>

#include "mlt/core/endpoint.h"
#include "transport/sim/host.h"

namespace clustar::bench::sim {

// Derive from it to learn what happens. Hooks may send and post; they must not run the simulation.
class MltHost : public transport::sim::Endpoint {
 public:
  using ConnectionId = mlt::Endpoint::ConnectionId;

  // Attaches itself. `host` and `options` outlive it.
  MltHost(transport::sim::Host& host, const mlt::Options& options, std::uint64_t seed);
  MltHost(const MltHost&) = delete;
  MltHost& operator=(const MltHost&) = delete;

  // As mlt::Endpoint's, at the simulation's present, and with what follows from them.
  ConnectionId open_sender(std::uint32_t peer, std::uint64_t secret) { return core_.open_sender(peer, secret, now()); }
  ConnectionId open_receiver(std::uint32_t peer, std::uint64_t secret) {
    return core_.open_receiver(peer, secret, now());
  }
  // With options of its own, which outlive the connection.
  ConnectionId open_sender(std::uint32_t peer, std::uint64_t secret, const mlt::Options& options) {
    return core_.open_sender(peer, secret, now(), options);
  }
  ConnectionId open_receiver(std::uint32_t peer, std::uint64_t secret, const mlt::Options& options) {
    return core_.open_receiver(peer, secret, now(), options);
  }
  void close(ConnectionId connection) { core_.close(connection); }
  std::optional<std::uint32_t> send(ConnectionId connection, std::uint32_t bytes, std::int32_t tag,
                                    const mlt::SendTerms& terms = {});
  // The receive is in progress when on_posted() has returned: a message that waits may be done before post() returns.
  std::optional<std::uint32_t> post(ConnectionId connection, std::int32_t tag, std::uint32_t length);

  mlt::Endpoint& core() { return core_; }
  std::uint32_t id() const { return host_.id(); }
  TimePoint now() const { return host_.simulation().now(); }

  void on_packet(transport::sim::SimPacket& packet, TimePoint now) final;
  TimePoint on_wake(TimePoint now) final;
  void on_room(TimePoint now) final { pump(now); }

 protected:
  // Stands for the payload of an outgoing data packet.
  virtual std::uint64_t content(const mlt::DataHeader& header, const mlt::Transmit& transmit);
  // The packet's payload goes where `arrival` says; never called for kDrop.
  virtual void on_placed(const mlt::Endpoint::Arrival& arrival, const transport::sim::SimPacket& packet);
  // What was staged for the receive is copied now.
  virtual void on_unstage(ConnectionId connection, std::uint32_t receive);
  // The missing packets are rebuilt in their receive now.
  virtual void on_rebuild(ConnectionId connection, const mlt::Rebuild& what);
  virtual void on_posted(ConnectionId connection, std::uint32_t receive);
  // The receive is released afterwards.
  virtual void on_received(ConnectionId connection, const mlt::ReceiveDone& done, TimePoint now);
  virtual void on_sent(ConnectionId connection, const mlt::SendDone& done, TimePoint now);
  virtual void on_peer_lost(ConnectionId connection);

 private:
  // Until the core has nothing more to say, or the NIC's queue is full.
  void pump(TimePoint now);
  void handle_events(TimePoint now);
  void handle(const mlt::Endpoint::Event& event, TimePoint now);
  bool transmit_next(TimePoint now);

  transport::sim::Host& host_;
  mlt::Endpoint core_;
  transport::sim::SimPacket pending_;  // refused by the NIC, to go first
  bool has_pending_ = false;
  bool pumping_ = false;
  bool again_ = false;  // a hook sent or posted something
};

}  // namespace clustar::bench::sim
