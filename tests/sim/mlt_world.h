// Hosts that run the real MLT core over the simulated network, and that check every byte's place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/sim/mlt_host.h"
#include "mlt/core/endpoint.h"
#include "transport/sim/host.h"
#include "transport/sim/simulation.h"
#include "transport/sim/topology.h"

namespace clustar::mlt::test {

namespace sim = transport::sim;

struct Finished {  // one message, as its receiver saw it
  std::uint32_t source;
  std::uint32_t destination;
  std::uint32_t bytes;
  std::uint32_t missing;
  TimePoint begun;  // when it was sent or its receive posted, whichever was later
  TimePoint done;
  std::size_t number = 0;                      // of the messages from this source to this destination
  std::vector<std::uint32_t> missing_packets;  // by index
};

class World;

class MltHost final : public bench::sim::MltHost {
 public:
  MltHost(World& world, sim::Host& host, const Options& options, std::uint64_t seed);

  void send_to(std::uint32_t to, std::uint32_t bytes, const SendTerms& terms);
  void post_from(std::uint32_t from, std::uint32_t bytes);
  std::uint64_t rebuilt() const { return rebuilt_; }  // packets
  std::uint64_t sends_done() const { return sends_done_; }
  std::uint64_t sender_missing_packets() const { return sender_missing_; }
  bool lost_a_peer() const { return lost_a_peer_; }
  std::uint32_t connection_to(std::uint32_t host);
  std::uint32_t connection_from(std::uint32_t host);
  void close_to(std::uint32_t host);
  void close_from(std::uint32_t host);

 protected:
  std::uint64_t content(const DataHeader& header, const Transmit& transmit) override;
  void on_placed(const mlt::Endpoint::Arrival& arrival, const sim::SimPacket& packet) override;
  void on_unstage(ConnectionId connection, std::uint32_t receive) override;
  void on_rebuild(ConnectionId connection, const Rebuild& what) override;
  void on_posted(ConnectionId connection, std::uint32_t receive) override;
  void on_received(ConnectionId connection, const ReceiveDone& what, TimePoint now) override;
  void on_sent(ConnectionId connection, const SendDone& what, TimePoint now) override;
  void on_peer_lost(ConnectionId) override { lost_a_peer_ = true; }

 private:
  struct Incoming {  // one receive
    std::uint32_t bytes = 0;
    std::size_t number = 0;  // of the receives from its sender
    std::vector<bool> placed;
    TimePoint posted{};
  };
  void place(std::uint32_t connection, std::uint32_t receive, std::uint32_t offset, std::uint32_t length);

  World& world_;
  const Options& options_;
  std::unordered_map<std::uint32_t, std::uint32_t> to_, from_;            // host -> connection
  std::vector<std::uint32_t> peer_of_;                                    // connection -> host
  std::map<std::pair<std::uint32_t, std::uint32_t>, Incoming> incoming_;  // (connection, receive)
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::uint32_t, std::uint64_t>> staged_;
  // Header of the parity in each buffer, by (connection, buffer).
  std::map<std::pair<std::uint32_t, std::uint32_t>, DataHeader> parity_;
  std::uint32_t posting_ = 0;  // bytes
  std::uint64_t rebuilt_ = 0;
  std::uint64_t sends_done_ = 0;
  std::uint64_t sender_missing_ = 0;
  bool lost_a_peer_ = false;
};

class World {
 public:
  World(sim::Simulation& simulation, sim::Network& network, const Options& options, std::uint64_t seed = 1);

  MltHost& host(std::uint32_t id) { return *hosts_[id]; }
  // Both ends of a connection exist before either is used; the first transfer does it, too.
  void connect(std::uint32_t from, std::uint32_t to);
  // Closes the connection at both ends, which must be idle, and opens it again.
  void reopen(std::uint32_t from, std::uint32_t to);
  // One message with its receive, both now.
  void transfer(std::uint32_t from, std::uint32_t to, std::uint32_t bytes, const SendTerms& terms = {});
  void post(std::uint32_t from, std::uint32_t to, std::uint32_t bytes);
  void send(std::uint32_t from, std::uint32_t to, std::uint32_t bytes, const SendTerms& terms = {});
  // Runs until all posted receives are done, or until `limit` has passed. False at the limit.
  bool finish(Duration limit = std::chrono::seconds(10));

  const std::vector<Finished>& finished() const { return finished_; }
  const std::vector<std::string>& violations() const { return violations_; }
  std::uint64_t secret(std::uint32_t from, std::uint32_t to) const;
  TimePoint now() const { return simulation_.now(); }

 private:
  friend class MltHost;
  void violate(const std::string& what);
  static std::uint64_t content(std::uint64_t secret, std::uint32_t message, std::uint32_t offset);

  sim::Simulation& simulation_;
  Options options_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<MltHost>> hosts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::pair<std::uint32_t, TimePoint>>>
      sent_;  // sizes, times
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> posted_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> reopened_;  // times
  std::vector<Finished> finished_;
  std::vector<std::string> violations_;
  std::uint64_t outstanding_ = 0;
};

}  // namespace clustar::mlt::test
