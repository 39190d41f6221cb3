#include "bench/paraexpress/simulate.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <vector>

#include "bench/paraexpress/fair_rates.h"

namespace clustar::bench::paraexpress {

namespace px = clustar::paraexpress;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Message {
  std::uint32_t tree = 0, chunk = 0;
  px::Member from = 0, to = 0;
  bool down = false;
};

// A shard that has bytes.
struct Tree {
  const px::Shard* shard = nullptr;
  double chunk_bytes = 0;
  std::uint32_t chunks = 0;
  std::size_t first_sum = 0;                 // in Run::missing_
  std::vector<std::uint32_t> children{};     // how many each member has
  std::vector<std::uint32_t> taker_begin{};  // of each member, in takers
  std::vector<px::Member> takers{};          // of the result
};

enum class What : std::uint8_t { kContribution, kOnWire, kArrived, kTaken };
struct Event {
  double at = 0;
  std::uint64_t order = 0;  // equals in the order in which they came up
  What what = What::kContribution;
  Message message{};
  bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
};

struct Flow {
  Message message{};
  double bytes = 0;  // left
  double since = 0;
};

class Run {
 public:
  Run(const px::Forest& forest, const px::Group& group, const px::Network& network, std::uint64_t bytes,
      const SimulationOptions& options)
      : forest_(forest),
        group_(group),
        network_(network),
        options_(options),
        rates_(capacities()),
        hosts_(group.members()) {
    plant(bytes);
    grain_ = options.grain * shortest_turn(bytes);
  }

  Simulation operator()() {
    for (px::Member rank = 0; rank < group_.ranks; ++rank) {
      const double lag = rank < network_.lag_s.size() ? network_.lag_s[rank] : 0;
      push(lag, What::kContribution, {0, 0, rank, rank, false});
    }
    while (!events_.empty() || !flows_.empty()) turn();
    for (const double uplink : uplink_bytes_)
      result_.busiest_uplink_bytes = std::max(result_.busiest_uplink_bytes, uplink);
    return result_;
  }

 private:
  struct Host {
    // By chunk: a lower one goes first, or the sums of an inner member would wait behind all that it sends as a leaf of
    // another tree. Equals in the order in which they became ready.
    std::multimap<std::uint32_t, Message> ready{};
    std::deque<Message> behind{};     // sent, and behind another to the same member: a connection keeps the order
    std::vector<px::Member> peers{};  // to whom one is on the wire
    std::uint32_t on_wire = 0;        // or behind
    double free_at = 0;               // of its work on messages
  };

  std::vector<double> capacities() const {
    std::vector<double> all(std::size_t{2} * group_.members(), network_.nic_bytes_per_s);
    for (int direction = 0; direction < 2; ++direction) {
      for (const px::Region& region : group_.regions.regions) all.push_back(px::uplink_rate(network_, region));
    }
    return all;
  }

  void plant(std::uint64_t bytes) {
    const auto ranges = px::element_ranges(forest_, bytes);
    const std::uint32_t members = group_.members();
    std::size_t sums = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].size() == 0) continue;
      Tree tree;
      tree.shard = &forest_.shards[i];
      tree.chunks = static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.chunks, ranges[i].size()));
      tree.chunk_bytes = static_cast<double>(ranges[i].size()) / tree.chunks;
      tree.first_sum = sums;
      sums += std::size_t{tree.chunks} * members;
      tree.children.assign(members, 0);
      tree.taker_begin.assign(members + 1, 0);
      const std::vector<px::Member> givers = px::givers_of(*tree.shard);
      for (px::Member member = 0; member < members; ++member) {
        if (!sends_up(tree, member)) continue;
        ++tree.children[tree.shard->parent[member]];
        ++tree.taker_begin[givers[member] + 1];
      }
      for (px::Member member = 0; member < members; ++member) tree.taker_begin[member + 1] += tree.taker_begin[member];
      tree.takers.resize(tree.taker_begin[members]);
      auto place = tree.taker_begin;
      for (px::Member member = 0; member < members; ++member) {
        if (sends_up(tree, member)) tree.takers[place[givers[member]]++] = member;
      }
      trees_.push_back(std::move(tree));
    }
    missing_.assign(sums, 0);
    for (const Tree& tree : trees_) {
      for (std::uint32_t chunk = 0; chunk < tree.chunks; ++chunk) {
        for (px::Member member = 0; member < members; ++member) {
          missing_[sum_of(tree, chunk, member)] =
              static_cast<std::uint16_t>(tree.children[member] + (forest_.is_rank(member) ? 1 : 0));
        }
      }
    }
    uplink_bytes_.assign(std::size_t{2} * group_.regions.regions.size(), 0);
  }
  static bool sends_up(const Tree& tree, px::Member member) {
    return tree.shard->parent[member] != px::kNobody && member != tree.shard->root;
  }
  std::size_t sum_of(const Tree& tree, std::uint32_t chunk, px::Member member) const {
    return tree.first_sum + std::size_t{chunk} * group_.members() + member;
  }

  // A lower bound of the time, over the number of messages that follow each other.
  double shortest_turn(std::uint64_t bytes) const {
    const px::Shape shape = px::shape_of(forest_, group_, network_);
    const double least = std::max(2 * static_cast<double>(shape.up.size()) * network_.latency_s,
                                  shape.busiest_seconds_per_byte * static_cast<double>(bytes) / 2);
    const double in_a_row = std::max(2.0 * static_cast<double>(shape.up.size()),
                                     static_cast<double>(shape.busiest_messages) * options_.chunks / options_.window);
    return least / std::max(1.0, in_a_row);
  }

  void push(double at, What what, const Message& message) { events_.push({at, ++event_count_, what, message}); }

  // All that happens within a grain of the next event, then new rates.
  void turn() {
    double next = events_.empty() ? kNever : events_.top().at;
    for (std::size_t i = 0; i < flows_.size(); ++i) next = std::min(next, end_of(i));
    const double until = now_ = std::max(now_, next + grain_);
    ended_.clear();
    for (std::uint32_t i = 0; i < flows_.size(); ++i) {
      if (end_of(i) <= until) ended_.emplace_back(end_of(i), i);
    }
    std::sort(ended_.begin(), ended_.end());
    const std::size_t before = flows_.size();
    for (const auto& [at, i] : ended_) {
      happen(at);
      left_wire(Message(flows_[i].message), at);  // a copy: flows_ may grow
    }
    happen(until);
    if (ended_.empty() && flows_.size() == before) return;
    settle(before, until);
  }
  double end_of(std::size_t flow) const {
    return flow < flow_rates_.size() ? flows_[flow].since + flows_[flow].bytes / flow_rates_[flow] : kNever;
  }

  void settle(std::size_t before, double now) {
    for (std::size_t i = 0; i < before; ++i) {
      flows_[i].bytes = std::max(0.0, flows_[i].bytes - flow_rates_[i] * (now - flows_[i].since));
      flows_[i].since = now;
    }
    for (auto one = ended_.rbegin(); one != ended_.rend(); ++one) flows_[one->second].bytes = -1;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      if (flows_[i].bytes < 0) continue;
      flows_[kept] = flows_[i];
      paths_[kept++] = paths_[i];
    }
    flows_.resize(kept);
    paths_.resize(kept);
    rates_.fill(paths_, flow_rates_);
  }

  void happen(double until) {
    while (!events_.empty() && events_.top().at <= until) {
      const Event event = events_.top();
      events_.pop();
      switch (event.what) {
        case What::kContribution: contribute(event.message.from, event.at); break;
        case What::kOnWire: connect(event.message, event.at); break;
        case What::kArrived: work(event.message.to, event.at, What::kTaken, event.message); break;
        case What::kTaken: take(event.message, event.at); break;
      }
    }
  }

  void work(px::Member host, double now, What then, const Message& message) {
    double& free_at = hosts_[host].free_at;
    free_at = std::max(free_at, now) + network_.message_s;
    push(free_at, then, message);
  }

  void contribute(px::Member rank, double now) {
    result_.seconds = std::max(result_.seconds, now);
    for (std::uint32_t chunk = 0; chunk < options_.chunks; ++chunk) {
      // Each rank begins with another shard, or all would send to one.
      for (std::size_t i = 0; i < trees_.size(); ++i) {
        const auto tree = static_cast<std::uint32_t>((rank + 1 + i) % trees_.size());
        if (chunk < trees_[tree].chunks) added(tree, chunk, rank, now);
      }
    }
    send(rank, now);
  }

  void added(std::uint32_t number, std::uint32_t chunk, px::Member member, double now) {
    const Tree& tree = trees_[number];
    if (--missing_[sum_of(tree, chunk, member)] > 0) return;
    if (member == tree.shard->root) {
      result_is_there(number, chunk, member, now);
    } else {
      ready({number, chunk, member, tree.shard->parent[member], false});
    }
  }

  void result_is_there(std::uint32_t number, std::uint32_t chunk, px::Member member, double now) {
    result_.seconds = std::max(result_.seconds, now);
    const Tree& tree = trees_[number];
    const auto begin = tree.takers.begin() + tree.taker_begin[member],
               end = tree.takers.begin() + tree.taker_begin[member + 1];
    const auto next = std::upper_bound(begin, end, member);
    for (auto taker = next; taker != end; ++taker) ready({number, chunk, member, *taker, true});
    for (auto taker = begin; taker != next; ++taker) ready({number, chunk, member, *taker, true});
  }

  void ready(const Message& message) { hosts_[message.from].ready.emplace(message.chunk, message); }

  void send(px::Member host, double now) {
    Host& sender = hosts_[host];
    for (; sender.on_wire < options_.window && !sender.ready.empty(); sender.ready.erase(sender.ready.begin())) {
      ++sender.on_wire;
      work(host, now, What::kOnWire, sender.ready.begin()->second);
    }
  }

  void connect(const Message& message, double now) {
    Host& sender = hosts_[message.from];
    if (std::find(sender.peers.begin(), sender.peers.end(), message.to) != sender.peers.end()) {
      sender.behind.push_back(message);
      return;
    }
    sender.peers.push_back(message.to);
    enter_wire(message, now);
  }

  void enter_wire(const Message& message, double now) {
    const double bytes = trees_[message.tree].chunk_bytes;
    FlowPath path;
    path.add(message.from);
    path.add(group_.members() + message.to);
    const std::uint32_t from = group_.region_of(message.from), to = group_.region_of(message.to);
    if (from != to) {
      const auto regions = static_cast<std::uint32_t>(group_.regions.regions.size());
      path.add(2 * group_.members() + from);
      path.add(2 * group_.members() + regions + to);
      uplink_bytes_[from] += bytes;
      uplink_bytes_[regions + to] += bytes;
    }
    flows_.push_back({message, bytes, now});
    paths_.push_back(path);
    ++result_.messages;
  }

  void left_wire(const Message& message, double now) {
    Host& sender = hosts_[message.from];
    --sender.on_wire;
    push(now + network_.latency_s, What::kArrived, message);
    const auto next = std::find_if(sender.behind.begin(), sender.behind.end(),
                                   [&](const Message& one) { return one.to == message.to; });
    if (next == sender.behind.end()) {
      sender.peers.erase(std::find(sender.peers.begin(), sender.peers.end(), message.to));
    } else {
      const Message message_behind = *next;
      sender.behind.erase(next);
      enter_wire(message_behind, now);
    }
    send(message.from, now);
  }

  void take(const Message& message, double now) {
    if (message.down) {
      result_is_there(message.tree, message.chunk, message.to, now);
    } else {
      added(message.tree, message.chunk, message.to, now);
    }
    send(message.to, now);
  }

  const px::Forest& forest_;
  const px::Group& group_;
  const px::Network& network_;
  const SimulationOptions options_;
  FairRates rates_;
  double grain_ = 0, now_ = 0;
  std::vector<Tree> trees_;
  std::vector<std::uint16_t> missing_;  // addends, by chunk and member
  std::vector<Host> hosts_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t event_count_ = 0;
  // On the wire; those behind flow_rates_' end have come since the rates were worked out.
  std::vector<Flow> flows_;
  std::vector<FlowPath> paths_;
  std::vector<double> flow_rates_;
  std::vector<std::pair<double, std::uint32_t>> ended_;
  std::vector<double> uplink_bytes_;
  Simulation result_;
};

}  // namespace

Simulation simulate(const px::Forest& forest, const px::Group& group, const px::Network& network, std::uint64_t bytes,
                    const SimulationOptions& options) {
  return Run(forest, group, network, bytes, options)();
}

}  // namespace clustar::bench::paraexpress
