#include "paraexpress/core/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace clustar::paraexpress {
namespace {

constexpr std::uint32_t kMostChunks = 4096;
// More chunks for less than a hundredth would be messages for nothing.
constexpr double kWorthIt = 0.99;

// Of the members' NICs and, behind them, the regions' uplinks.
class Loads {
 public:
  Loads(const Group& group, const Network& network)
      : group_(group),
        out_(resources()),
        in_(resources()),
        headers_out_(resources()),
        headers_in_(resources()),
        sent_(group.members()),
        received_(group.members()) {
    seconds_per_byte_.assign(group.members(), 1 / network.nic_bytes_per_s);
    for (const Region& region : group.regions.regions) seconds_per_byte_.push_back(1 / uplink_rate(network, region));
  }

  void send(Member from, Member to, double bytes) {
    add(from, to, bytes);
    ++sent_[from];
    ++received_[to];
    const std::uint32_t region = group_.region_of(from), other = group_.region_of(to);
    if (region != other) add(group_.members() + region, group_.members() + other, bytes);
  }
  void add(const Loads& other) {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      out_[i] += other.out_[i], in_[i] += other.in_[i];
      headers_out_[i] += other.headers_out_[i], headers_in_[i] += other.headers_in_[i];
    }
    for (std::size_t i = 0; i < sent_.size(); ++i) sent_[i] += other.sent_[i], received_[i] += other.received_[i];
  }
  void clear() {
    std::fill(out_.begin(), out_.end(), 0);
    std::fill(in_.begin(), in_.end(), 0);
    std::fill(headers_out_.begin(), headers_out_.end(), 0);
    std::fill(headers_in_.begin(), headers_in_.end(), 0);
    std::fill(sent_.begin(), sent_.end(), 0);
    std::fill(received_.begin(), received_.end(), 0);
  }

  Shape::Step busiest() const {
    Shape::Step step;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      step.seconds_per_byte = std::max(step.seconds_per_byte, std::max(out_[i], in_[i]) * seconds_per_byte_[i]);
      step.seconds_per_header =
          std::max(step.seconds_per_header, std::max(headers_out_[i], headers_in_[i]) * seconds_per_byte_[i]);
    }
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      step.sent = std::max(step.sent, sent_[i]);
      step.received = std::max(step.received, received_[i]);
      step.messages = std::max(step.messages, sent_[i] + received_[i]);
    }
    return step;
  }
  // What went up one way comes down the other.
  void both_ways(Shape& shape) const {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const double bytes = out_[i] + in_[i];
      shape.busiest_seconds_per_byte = std::max(shape.busiest_seconds_per_byte, bytes * seconds_per_byte_[i]);
      shape.busiest_seconds_per_header =
          std::max(shape.busiest_seconds_per_header, (headers_out_[i] + headers_in_[i]) * seconds_per_byte_[i]);
      double& share = i < group_.members() ? shape.nic_share : shape.uplink_share;
      share = std::max(share, bytes);
    }
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      shape.busiest_messages = std::max(shape.busiest_messages, 2 * (std::uint64_t{sent_[i]} + received_[i]));
    }
  }

 private:
  std::size_t resources() const { return group_.members() + group_.regions.regions.size(); }
  void add(std::size_t from, std::size_t to, double bytes) {
    out_[from] += bytes;
    in_[to] += bytes;
    ++headers_out_[from];
    ++headers_in_[to];
  }

  const Group& group_;
  std::vector<double> seconds_per_byte_, out_, in_, headers_out_, headers_in_;
  std::vector<std::uint32_t> sent_, received_;
};

struct Walk {
  const Shard* shard = nullptr;
  double share = 0;
  std::vector<Member> order{};            // leaves first, the root left out
  std::vector<std::uint32_t> first_at{};  // of each height, in `order`
};

Walk walk(const Shard& shard, double share, const Network& network, std::vector<double>& latest) {
  Walk one{&shard, share, {}, {}};
  std::vector<std::uint32_t> heights;
  one.order = leaves_first(shard, heights);
  for (std::size_t i = 0; i < one.order.size(); ++i) {
    const Member member = one.order[i];
    const std::uint32_t height = heights[member];
    while (one.first_at.size() <= height) one.first_at.push_back(static_cast<std::uint32_t>(i));
    if (member >= network.lag_s.size() || !(network.lag_s[member] > 0)) continue;
    if (latest.size() <= height) latest.resize(height + 1, 0);
    latest[height] = std::max(latest[height], network.lag_s[member]);
  }
  one.order.pop_back();  // the highest
  return one;
}

// Of one chunk's messages. Those that many send to one host come at once, and it takes them one by one.
double step_time(double wire, const Network& network, std::uint32_t sent, std::uint32_t received,
                 std::uint32_t messages) {
  const double work = network.message_s;
  const double taken = received > sent ? work * received : work;
  return std::max(network.latency_s + std::max(wire, work * sent) + taken, work * messages);
}

}  // namespace

std::string inconsistency(const Network& network, const Group& group) {
  if (!(network.nic_bytes_per_s > 0)) return "the NIC's rate is to be above 0";
  if (!(network.latency_s >= 0) || !(network.message_s >= 0))
    return "latency and time per message are to be at least 0";
  if (!(network.message_bytes >= 0)) return "bytes beside a message are to be at least 0";
  if (network.least_chunk_bytes == 0 || network.least_chunk_bytes > network.most_chunk_bytes) {
    return "the least chunk is to be at least 1 byte and no more than the most";
  }
  if (!network.lag_s.empty() && network.lag_s.size() != group.ranks) {
    return fmt::format("{} lags; allowed: none, or one for each of {} ranks", network.lag_s.size(), group.ranks);
  }
  for (const double lag : network.lag_s) {
    if (!(lag >= 0)) return "a lag is to be at least 0";
  }
  return {};
}

double uplink_rate(const Network& network, const Region& region) {
  return network.nic_bytes_per_s * region.hosts / region.oversubscription;
}

Shape shape_of(const Forest& forest, const Group& group, const Network& network) {
  Shape shape;
  double weights = 0;
  for (const Shard& shard : forest.shards) weights += static_cast<double>(shard.weight);
  std::vector<Walk> walks;
  std::vector<double> latest;
  std::size_t steps = 0;
  for (const Shard& shard : forest.shards) {
    if (shard.weight == 0) continue;
    const double share = static_cast<double>(shard.weight) / weights;
    shape.largest_share = std::max(shape.largest_share, share);
    walks.push_back(walk(shard, share, network, latest));
    steps = std::max(steps, walks.back().first_at.size() - 1);
  }
  Loads step(group, network), all(group, network);
  for (std::size_t height = 0; height < steps; ++height) {
    step.clear();
    for (const Walk& one : walks) {
      if (one.first_at.size() <= height + 1) continue;
      for (std::size_t i = one.first_at[height]; i < one.first_at[height + 1]; ++i) {
        step.send(one.order[i], one.shard->parent[one.order[i]], one.share);
      }
    }
    shape.up.push_back(step.busiest());
    all.add(step);
  }
  all.both_ways(shape);
  for (std::uint32_t height = 0; height < latest.size(); ++height) {
    if (latest[height] > 0) shape.late.push_back({height, latest[height]});
  }
  return shape;
}

Shape slower(Shape shape, double times) {
  for (Shape::Step& step : shape.up) step.seconds_per_byte *= times, step.seconds_per_header *= times;
  shape.busiest_seconds_per_byte *= times;
  shape.busiest_seconds_per_header *= times;
  return shape;
}

Cost cost(const Shape& shape, const Network& network, std::uint64_t bytes, std::uint32_t chunks) {
  const double size = static_cast<double>(bytes), parts = chunks;
  double first = 0, first_up = 0, by_steps = network.latency_s + network.message_s, wait = 0;
  std::size_t height = 0;
  auto late = shape.late.begin();
  // A rank that is late holds up the step that sends its sum by what it is later than that.
  const auto waits = [&] {
    for (; late != shape.late.end() && late->height <= height; ++late) wait = std::max(wait, late->lag_s - first_up);
  };
  for (const Shape::Step& step : shape.up) {
    waits();
    const double wire = step.seconds_per_byte * size;
    const double chunk = wire / parts + network.message_bytes * step.seconds_per_header;
    const double up = step_time(chunk, network, step.sent, step.received, step.messages);
    const double down = step_time(chunk, network, step.received, step.sent, step.messages);
    const double all = std::max(chunk, network.message_s * step.messages) * parts;
    first_up += up;
    first += up + down;
    by_steps += std::max(all, up) + std::max(all, down);
    ++height;
  }
  waits();
  const double rest =
      std::max(shape.busiest_seconds_per_byte * size / parts + network.message_bytes * shape.busiest_seconds_per_header,
               network.message_s * static_cast<double>(shape.busiest_messages));
  const double in_turn = first + (parts - 1) * rest;
  return {(chunks == 1 ? first : std::min(in_turn, by_steps)) + wait, chunks};
}

Cost least_cost(const Shape& shape, const Network& network, std::uint64_t bytes) {
  const double shard = shape.largest_share * static_cast<double>(bytes);
  std::uint32_t chunks = 1;
  while (chunks < kMostChunks && shard / chunks > static_cast<double>(network.most_chunk_bytes)) chunks *= 2;
  Cost least = cost(shape, network, bytes, chunks);
  for (chunks *= 2; chunks <= kMostChunks && shard / chunks >= static_cast<double>(network.least_chunk_bytes);
       chunks *= 2) {
    const Cost next = cost(shape, network, bytes, chunks);
    if (next.seconds < kWorthIt * least.seconds) least = next;
  }
  return least;
}

}  // namespace clustar::paraexpress
