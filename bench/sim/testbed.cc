#include "bench/sim/testbed.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "mlt/driver/driver_options.h"
#include "transport/base/rng.h"

namespace clustar::bench::sim {

namespace {

// A harness that asks for more than the core's bounds allow has no result to show.
void demand(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "clustar-sim: %s\n", what);
  std::abort();
}

}  // namespace

class Testbed::Node final : public MltHost {
 public:
  Node(Testbed& bed, transport::sim::Host& host, const mlt::Options& options, std::uint64_t seed)
      : MltHost(host, options, seed), bed_(bed), options_(options) {}

  const mlt::Options& options() const { return options_; }

  std::uint32_t add(ConnectionId connection, std::uint32_t lane) {
    if (lanes_.size() <= connection) lanes_.resize(connection + 1);
    lanes_[connection].number = lane;
    return connection;
  }
  void post_with_tag(ConnectionId connection, std::uint32_t bytes, std::int32_t tag) {
    posting_ = tag;
    demand(post(connection, tag, bytes).has_value(), "a receive was refused");
  }

 private:
  struct Receive {
    TimePoint posted{};
    std::int32_t tag = 0;
  };
  struct Incoming {
    std::uint32_t number = 0;
    std::vector<Receive> receives;  // by the core's number
  };

  void on_posted(ConnectionId connection, std::uint32_t receive) override {
    auto& receives = lanes_[connection].receives;
    if (receives.size() <= receive) receives.resize(receive + 1);
    receives[receive] = {now(), posting_};
  }
  void on_received(ConnectionId connection, const mlt::ReceiveDone& done, TimePoint now) override {
    const Receive& receive = lanes_[connection].receives[done.receive];
    bed_.done({lanes_[connection].number, receive.tag, done.bytes, done.missing, receive.posted, now});
  }

  Testbed& bed_;
  const mlt::Options& options_;
  std::vector<Incoming> lanes_;  // by connection
  std::int32_t posting_ = 0;
};

Testbed::Testbed(const Setup& setup)
    : simulation_({.seed = setup.seed}), seed_(setup.seed), base_rtt_(setup.base_rtt), path_known_(setup.path_known) {
  options_.push_back(std::make_unique<mlt::Options>(setup.options));
  options_[0]->base_rtt = base_rtt_;
  options_[0]->max_tolerance_ppm = 1'000'000;
  if (setup.path_known) {
    path_.fill(*options_[0]);
    for (const auto end : {mlt::Endpoint::End::kSends, mlt::Endpoint::End::kReceives}) {
      mlt::driver::set_path(path_[static_cast<std::size_t>(end)], setup.round_trip, end);
    }
  }
  transport::sim::SwitchOptions switches;
  switches.buffer_bytes = setup.buffer_bytes;
  switches.mark_above = transport::sim::every_class<std::uint64_t>(setup.mark_above);
  transport::sim::HostOptions host;
  host.tx_queue_packets = 4;
  transport::sim::LinkOptions link;
  link.rate_bps = setup.line_bps;
  if (setup.leaf_spine) {
    link.delay = setup.round_trip / 8;
    transport::sim::LinkOptions from_host = link;
    if (setup.from_host_bps > 0) from_host.rate_bps = setup.from_host_bps;
    network_ = transport::sim::Network::leaf_spine(simulation_, {.leaves = 2,
                                                                 .hosts_per_leaf = setup.hosts / 2,
                                                                 .spines = setup.spines,
                                                                 .host_link = link,
                                                                 .from_host = from_host,
                                                                 .fabric_link = link,
                                                                 .host = host,
                                                                 .switches = switches});
  } else {
    link.delay = setup.round_trip / 4;
    network_ = transport::sim::Network::star(simulation_,
                                             {.hosts = setup.hosts, .link = link, .host = host, .switches = switches});
  }
  for (std::uint32_t id = 0; id < network_->hosts(); ++id) {
    nodes_.push_back(std::make_unique<Node>(*this, network_->host(id), *options_[0], mix64(seed_ + id * kGoldenGamma)));
  }
}

Testbed::~Testbed() = default;

void Testbed::set_options(std::uint32_t host, const mlt::Options& options) {
  options_.push_back(std::make_unique<mlt::Options>(options));
  options_.back()->base_rtt = base_rtt_;
  options_.back()->max_tolerance_ppm = 1'000'000;
  nodes_[host] =
      std::make_unique<Node>(*this, network_->host(host), *options_.back(), mix64(seed_ + host * kGoldenGamma));
}

std::uint32_t Testbed::connect(std::uint32_t from, std::uint32_t to) {
  const auto number = static_cast<std::uint32_t>(lanes_.size());
  const std::uint64_t secret = mix64(mix64(seed_ + kGoldenGamma) + number);
  const mlt::Options& sends = path_known_ ? path_[0] : nodes_[from]->options();
  const mlt::Options& receives = path_known_ ? path_[1] : nodes_[to]->options();
  const auto sender = nodes_[from]->open_sender(to, secret, sends);
  const auto receiver = nodes_[to]->open_receiver(from, secret, receives);
  lanes_.push_back({from, to, nodes_[from]->add(sender, number), nodes_[to]->add(receiver, number)});
  return number;
}

void Testbed::disconnect(std::uint32_t lane) {
  nodes_[lanes_[lane].from]->close(lanes_[lane].sender);
  nodes_[lanes_[lane].to]->close(lanes_[lane].receiver);
}

void Testbed::post(std::uint32_t lane, std::uint32_t bytes, std::int32_t tag) {
  ++outstanding_;
  nodes_[lanes_[lane].to]->post_with_tag(lanes_[lane].receiver, bytes, tag);
}

void Testbed::send(std::uint32_t lane, std::uint32_t bytes, const mlt::SendTerms& terms, std::int32_t tag) {
  demand(nodes_[lanes_[lane].from]->send(lanes_[lane].sender, bytes, tag, terms).has_value(), "a send was refused");
}

bool Testbed::finish(Duration limit) {
  const TimePoint end = now() + limit;
  while (outstanding_ > 0 && now() < end) {
    if (!simulation_.step()) break;
  }
  return outstanding_ == 0;
}

mlt::Sender& Testbed::sender(std::uint32_t lane) {
  return nodes_[lanes_[lane].from]->core().sender(lanes_[lane].sender);
}

mlt::Receiver& Testbed::receiver(std::uint32_t lane) {
  return nodes_[lanes_[lane].to]->core().receiver(lanes_[lane].receiver);
}

void Testbed::done(const Done& what) {
  --outstanding_;
  if (handler_) handler_(what);
}

mlt::Options driver_options(std::uint64_t bps, std::uint8_t paths) {
  using transport::io::LinkKind;
  using transport::io::LinkProfile;
  transport::io::Capabilities wire;
  wire.max_packet = 1471;
  wire.paths = paths;
  // As over the kernel's UDP, in whole Mbit/s as the kernel has them.
  const auto link = LinkProfile::usual(LinkKind::kKernel, bps / 1'000'000 * 1'000'000);
  return mlt::driver::options_for(wire, link, 0).value();
}

double seconds(Duration duration) { return static_cast<double>(duration.count()) * 1e-9; }
double microseconds(Duration duration) { return static_cast<double>(duration.count()) * 1e-3; }

double wire_bytes(std::uint32_t bytes, const mlt::Options& options) {
  const double overhead = mlt::DataHeader::kSize + transport::sim::SimulationOptions{}.overhead_bytes;
  return bytes + mlt::packet_count(bytes, options.segment) * overhead;
}

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

mlt::SendTerms ring_terms(std::uint32_t tolerance_ppm, std::uint64_t collective_bytes) {
  mlt::SendTerms terms;
  terms.tolerant = true;
  terms.communicator = 1;
  terms.ranks = terms.edges = 8;
  terms.collective_bytes = collective_bytes;
  terms.tolerance_ppm = tolerance_ppm;
  return terms;
}

}  // namespace clustar::bench::sim
