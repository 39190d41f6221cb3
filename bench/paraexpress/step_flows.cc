#include "bench/paraexpress/step_flows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

#include "transport/base/rng.h"

namespace clustar::bench::paraexpress {

namespace px = clustar::paraexpress;

namespace {

// Flows that end within this part of the time so far end together: a bound on how often rates are worked out.
constexpr double kTogether = 0.005;

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return mix64(a * kGoldenGamma + b + kGoldenGamma); }

}  // namespace

double FlowNetwork::wire_bytes(double payload) const {
  const double packets = packet_payload > 0 ? std::max(1.0, std::ceil(payload / packet_payload)) : 0;
  return payload + packets * packet_overhead + message_overhead;
}

StepFlows::StepFlows(const px::Forest& forest, const px::Group& group, std::size_t few)
    : members_(forest.members()), few_(few), region_of_(group.regions.region_of) {
  double sum = 0;
  for (const px::Shard& shard : forest.shards) sum += static_cast<double>(shard.weight);
  std::map<std::uint64_t, std::uint32_t> weight_index;
  std::vector<std::vector<Edge>> by_height;
  std::vector<std::uint32_t> heights;
  for (const px::Shard& shard : forest.shards) {
    if (shard.weight == 0) continue;
    const auto [weight, is_new] = weight_index.try_emplace(shard.weight, weights_.size());
    if (is_new) weights_.push_back(static_cast<double>(shard.weight) / sum);
    add_ways(shard, px::leaves_first(shard, heights));
    for (px::Member member = 0; member < members_; ++member) {
      const px::Member parent = shard.parent[member];
      if (parent == px::kNobody || parent == member) continue;
      if (by_height.size() <= heights[member]) by_height.resize(heights[member] + 1);
      by_height[heights[member]].push_back({member, parent, weight->second});
    }
  }
  // A ring's steps are all alike: the sum over the messages of a step tells steps apart, whatever their order.
  std::unordered_map<std::uint64_t, std::size_t> known;
  std::vector<Part> distinct;
  for (const std::vector<Edge>& edges : by_height) {
    std::uint64_t sign = edges.size();
    for (const Edge& edge : edges) sign += mixed(mixed(edge.from, edge.to), edge.weight);
    const auto [step, is_new] = known.try_emplace(sign, distinct.size());
    if (is_new) distinct.push_back({&edges, 0});
    ++distinct[step->second].repeats;
  }
  for (const Part& part : distinct) {
    steps_.push_back(step_of({{part.edges, 1}}, false));
    steps_.back().repeats = part.repeats;
  }
  all_ = step_of(distinct, true);
}

std::vector<std::uint32_t> StepFlows::classes_of(const std::vector<Part>& parts, bool both) const {
  std::vector<std::uint32_t> classes = region_of_;
  std::size_t count = 0;
  std::vector<std::uint64_t> signs(members_);
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;
  while (true) {
    for (px::Member member = 0; member < members_; ++member) signs[member] = mixed(classes[member], 0);
    for (const Part& part : parts) {
      for (const Edge& edge : *part.edges) {
        const std::uint64_t to = mixed(mixed(classes[edge.to], 1), edge.weight);
        const std::uint64_t from = mixed(mixed(classes[edge.from], both ? 1 : 2), edge.weight);
        signs[edge.from] += part.repeats * to;
        signs[edge.to] += part.repeats * from;
      }
    }
    numbers.clear();
    for (px::Member member = 0; member < members_; ++member) {
      classes[member] = numbers.try_emplace(signs[member], static_cast<std::uint32_t>(numbers.size())).first->second;
    }
    if (numbers.size() == count) return classes;
    count = numbers.size();
  }
}

StepFlows::Step StepFlows::step_of(const std::vector<Part>& parts, bool both) const {
  std::size_t edges = 0;
  for (const Part& part : parts) edges += part.edges->size();
  Step step;
  std::vector<std::uint32_t> classes;
  if (edges <= few_) {
    classes.resize(members_);
    std::iota(classes.begin(), classes.end(), 0u);
  } else {
    classes = classes_of(parts, both);
  }
  const std::uint32_t count = *std::max_element(classes.begin(), classes.end()) + 1;
  step.class_size.assign(count, 0);
  for (const std::uint32_t one : classes) ++step.class_size[one];
  std::unordered_map<std::uint64_t, std::size_t> place;
  const auto add = [&](px::Member from, px::Member to, std::uint32_t weight, std::uint32_t copies) {
    const std::uint64_t key = (std::uint64_t{classes[from]} * count + classes[to]) * weights_.size() + weight;
    const auto [at, is_new] = place.try_emplace(key, step.flows.size());
    if (is_new) step.flows.push_back({classes[from], classes[to], region_of_[from], region_of_[to], weight, 0});
    step.flows[at->second].copies += copies;
  };
  for (const Part& part : parts) {
    for (const Edge& edge : *part.edges) {
      add(edge.from, edge.to, edge.weight, part.repeats);
      if (both) add(edge.to, edge.from, edge.weight, part.repeats);
    }
  }
  return step;
}

std::size_t StepFlows::most_classes() const {
  std::size_t most = all_.flows.size();
  for (const Step& step : steps_) most = std::max(most, step.flows.size());
  return most;
}

void StepFlows::add_ways(const px::Shard& shard, const std::vector<px::Member>& order) {
  std::vector<Way> to_root(members_);
  std::vector<bool> inner(members_, false);
  for (auto member = order.rbegin() + 1; member != order.rend(); ++member) {  // but for the root, which is the highest
    const px::Member parent = shard.parent[*member];
    to_root[*member] = to_root[parent];
    ++(region_of_[*member] == region_of_[parent] ? to_root[*member].within : to_root[*member].across);
    inner[parent] = true;
  }
  for (const px::Member member : order) {
    if (inner[member]) continue;
    const Way way = to_root[member];
    const auto covers = [](const Way& a, const Way& b) { return a.within >= b.within && a.across >= b.across; };
    if (std::ranges::any_of(ways_, [&](const Way& known) { return covers(known, way); })) continue;
    std::erase_if(ways_, [&](const Way& known) { return covers(way, known); });
    ways_.push_back(way);
  }
}

double StepFlows::latency(const FlowNetwork& network, double payload) const {
  const double packet = network.wire_bytes(std::min(payload, network.packet_payload)) - network.message_overhead;
  const double passing = network.packet_payload > 0 ? packet / network.nic_bytes_per_s : 0;
  const double within = network.within_s + network.within_hops * passing;
  const double across = network.across_s + network.across_hops * passing;
  double longest = 0;
  for (const Way& way : ways_) longest = std::max(longest, way.within * within + way.across * across);
  return longest;
}

double StepFlows::drain(const Step& step, const FlowNetwork& network, const px::RegionMap& regions, double bytes,
                        double messages) const {
  const auto classes = static_cast<std::uint32_t>(step.class_size.size());
  const auto areas = static_cast<std::uint32_t>(regions.regions.size());
  std::vector<double> capacities;
  for (int direction = 0; direction < 2; ++direction) {
    for (const std::uint32_t size : step.class_size) capacities.push_back(network.nic_bytes_per_s * size);
  }
  for (int direction = 0; direction < 2; ++direction) {
    for (const px::Region& region : regions.regions) {
      capacities.push_back(network.nic_bytes_per_s * region.hosts / region.oversubscription);
    }
  }
  std::vector<FlowPath> paths;
  std::vector<double> left;
  for (const Flows& flows : step.flows) {
    FlowPath path;
    path.copies = flows.copies;
    path.add(flows.from);
    path.add(classes + flows.to);
    if (flows.from_region != flows.to_region) {
      path.add(2 * classes + flows.from_region);
      path.add(2 * classes + areas + flows.to_region);
    }
    paths.push_back(path);
    left.push_back(network.wire_bytes(weights_[flows.weight] * bytes) * messages);
  }
  FairRates fair(std::move(capacities));
  std::vector<double> rates;
  double now = 0;
  while (!paths.empty()) {
    fair.fill(paths, rates);
    double next = left[0] / rates[0], last = 0;
    for (std::size_t i = 1; i < paths.size(); ++i) next = std::min(next, left[i] / rates[i]);
    next += kTogether * (now + next);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const double takes = left[i] / rates[i];
      if (takes <= next) {
        last = std::max(last, takes);
        continue;
      }
      left[kept] = left[i] - rates[i] * next;
      paths[kept++] = paths[i];
    }
    now += kept == 0 ? last : next;
    paths.resize(kept);
    left.resize(kept);
  }
  return now;
}

FlowRun StepFlows::run(const FlowNetwork& network, const px::RegionMap& regions, std::uint64_t bytes,
                       std::uint32_t chunks) const {
  const double chunk = static_cast<double>(bytes) / chunks;
  double first = 0, by_steps = 0;
  for (const Step& step : steps_) {
    const double times = 2 * static_cast<double>(step.repeats);
    first += times * drain(step, network, regions, chunk, 1);
    if (chunks > 1) by_steps += times * drain(step, network, regions, chunk, chunks);
  }
  FlowRun run;
  run.seconds = first;
  if (chunks > 1) run.seconds = std::min(by_steps, first + (chunks - 1) * drain(all_, network, regions, chunk, 1));
  const double largest = weights_.empty() ? 0 : *std::max_element(weights_.begin(), weights_.end());
  run.seconds += 2 * latency(network, largest * chunk);
  std::vector<double> out(regions.regions.size(), 0);
  for (const Flows& flows : all_.flows) {
    run.messages += std::uint64_t{flows.copies} * chunks;
    if (flows.from_region == flows.to_region) continue;
    out[flows.from_region] += flows.copies * network.wire_bytes(weights_[flows.weight] * chunk) * chunks;
  }
  for (const double uplink : out) run.busiest_uplink_bytes = std::max(run.busiest_uplink_bytes, uplink);
  return run;
}

}  // namespace clustar::bench::paraexpress
