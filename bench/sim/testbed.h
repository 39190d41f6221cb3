// Simulated hosts that send each other messages, as the experiments need them: 100 Gbit/s, 10 us there and back, marks
// above 65 full frames.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bench/sim/mlt_host.h"
#include "transport/sim/simulation.h"
#include "transport/sim/topology.h"

namespace clustar::bench::sim {

inline constexpr std::uint64_t kLineBitsPerSecond = 100'000'000'000;
inline constexpr Duration kRoundTrip = std::chrono::microseconds(10);
inline constexpr std::uint64_t kMarkAbove = 65 * 1500;  // bytes

// One receive that is over.
struct Done {
  std::uint32_t lane = 0;
  std::int32_t tag = 0;
  std::uint32_t bytes = 0;
  std::uint32_t missing = 0;
  TimePoint posted{};
  TimePoint at{};
};

struct Setup {
  std::uint32_t hosts = 2;
  mlt::Options options = {};
  std::uint64_t buffer_bytes = 1 << 20;  // of each switch port
  std::uint64_t seed = 1;
  bool leaf_spine = false;  // the hosts behind two leaves joined by spines, all links alike; otherwise a star
  std::uint32_t spines = 1;
  std::uint64_t line_bps = kLineBitsPerSecond;
  std::uint64_t from_host_bps = 0;  // leaf_spine: how fast a host's packets reach its leaf; 0: line_bps
  Duration round_trip = kRoundTrip;
  Duration base_rtt = kRoundTrip;  // Options::base_rtt of all hosts
  std::uint64_t mark_above = kMarkAbove;
  bool path_known = false;  // connections begin with the round trip, as the driver's do by their handshake
};

class Testbed {
 public:
  explicit Testbed(const Setup& setup);
  ~Testbed();
  Testbed(const Testbed&) = delete;
  Testbed& operator=(const Testbed&) = delete;

  // From now on this host runs these options instead. Before its first lane.
  void set_options(std::uint32_t host, const mlt::Options& options);

  // A connection in one direction; several between the same hosts are apart. Returns the lane's number.
  std::uint32_t connect(std::uint32_t from, std::uint32_t to);
  // Its number is not used again.
  void disconnect(std::uint32_t lane);
  void post(std::uint32_t lane, std::uint32_t bytes, std::int32_t tag = 0);
  void send(std::uint32_t lane, std::uint32_t bytes, const mlt::SendTerms& terms = {}, std::int32_t tag = 0);
  void transfer(std::uint32_t lane, std::uint32_t bytes, const mlt::SendTerms& terms = {}, std::int32_t tag = 0) {
    post(lane, bytes, tag);
    send(lane, bytes, terms, tag);
  }
  // Called from inside the run; may post, send and transfer.
  void on_done(std::function<void(const Done&)> handler) { handler_ = std::move(handler); }

  // Until all posted receives are done; false when `limit` has passed before.
  bool finish(Duration limit);

  mlt::Sender& sender(std::uint32_t lane);
  mlt::Receiver& receiver(std::uint32_t lane);
  transport::sim::Simulation& simulation() { return simulation_; }
  transport::sim::Network& network() { return *network_; }
  TimePoint now() const { return simulation_.now(); }

 private:
  class Node;
  struct Lane {
    std::uint32_t from, to;
    MltHost::ConnectionId sender, receiver;
  };
  void done(const Done& what);

  transport::sim::Simulation simulation_;
  std::uint64_t seed_;
  Duration base_rtt_;
  const bool path_known_;
  std::array<mlt::Options, 2> path_;                    // of senders and receivers, where it is
  std::vector<std::unique_ptr<mlt::Options>> options_;  // [0]: of all hosts without their own
  std::unique_ptr<transport::sim::Network> network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Lane> lanes_;
  std::function<void(const Done&)> handler_;
  std::uint64_t outstanding_ = 0;
};

// What the driver chooses for kernel UDP at MTU 1500 on a line of `bps`.
mlt::Options driver_options(std::uint64_t bps, std::uint8_t paths = 8);
double seconds(Duration duration);
double microseconds(Duration duration);
// Wire bytes of a message of `bytes` whose packets are sent once, as its receiver's link carries them.
double wire_bytes(std::uint32_t bytes, const mlt::Options& options);
// Nearest rank; 0 of no values. Reorders.
double quantile(std::vector<double>& values, double q);
// Terms of stage 0 of a ring over eight hosts.
mlt::SendTerms ring_terms(std::uint32_t tolerance_ppm, std::uint64_t collective_bytes);

}  // namespace clustar::bench::sim
