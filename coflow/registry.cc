#include "coflow/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "coflow/core/policies/bssi.h"
#include "coflow/core/policies/dark.h"
#include "coflow/core/policies/dclas.h"
#include "coflow/core/policies/fair.h"
#include "coflow/core/policies/match.h"
#include "coflow/core/policies/maxmin.h"
#include "coflow/core/policies/ordered.h"
#include "coflow/core/policies/pfp.h"

namespace clustar::coflow {
namespace {

// What follows the colon.
class Keys {
 public:
  explicit Keys(std::string_view policy) : policy_(policy) {}

  bool needs_deadlines = false;

  Result<void> parse(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(','), text.size());
      const std::string_view pair = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const std::size_t equals = pair.find('=');
      if (equals == 0 || equals == std::string_view::npos) {
        return wrong(fmt::format("'{}' is no key=value", pair));
      }
      if (!values_.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second) {
        return wrong(fmt::format("{} is there twice", pair.substr(0, equals)));
      }
    }
    return {};
  }
  // Into `value`, if it is there.
  template <class T>
  void take(std::string_view key, double least, double most, T& value) {
    const auto found = values_.find(key);
    if (found == values_.end()) return;
    double read = 0;
    const std::string_view text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
    const bool in_range = error == std::errc() && end == text.data() + text.size() && read >= least && read <= most;
    if (in_range && (std::is_same_v<T, double> || read == std::floor(read))) {
      value = static_cast<T>(read);
    } else if (problem_.empty()) {
      problem_ = fmt::format("{} is '{}'; allowed: {}{} to {}", key, text,
                             std::is_same_v<T, double> ? "" : "whole numbers from ", least, most);
    }
    values_.erase(found);
  }
  // After all were taken.
  Result<void> check(std::string_view allowed) const {
    if (!problem_.empty()) return wrong(problem_);
    if (values_.empty()) return {};
    return wrong(
        fmt::format("there is no {}; allowed: {}", values_.begin()->first, allowed.empty() ? "nothing" : allowed));
  }

 private:
  tl::unexpected<Error> wrong(const std::string& what) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("policy {}: {}", policy_, what));
  }
  const std::string_view policy_;
  std::map<std::string_view, std::string_view> values_;
  std::string problem_;
};

using Make = std::function<std::unique_ptr<Scheduler>(const Table&)>;

using MakeOrdered = std::unique_ptr<Scheduler> (*)(const Table&, const MaddOptions&);
Make ordered(MakeOrdered make, Keys& keys, const PolicyDefaults& defaults) {
  MaddOptions options;
  options.full_below = defaults.full_below;
  keys.take("deadlines", 0, 1, options.deadlines);
  keys.needs_deadlines = options.deadlines;
  return [=](const Table& table) { return make(table, options); };
}

constexpr double kMostBytes = 1e18;
constexpr int kMostQueues = 1000;

Make dark(Keys& keys, const PolicyDefaults& defaults) {
  DarkOptions options;
  options.full_below = defaults.full_below;
  keys.take("queues", 1, kMostQueues, options.queues);
  keys.take("first", 1, kMostBytes, options.first_limit);
  keys.take("factor", 1.01, 1e6, options.factor);
  return [=](const Table& table) { return std::make_unique<Dark>(table, options); };
}

Make dclas(Keys& keys) {
  DclasOptions options;
  keys.take("queues", 1, kMostQueues, options.queues);
  keys.take("first", 1, kMostBytes, options.first_limit);
  keys.take("factor", 1.01, 1e6, options.factor);
  keys.take("local", 0, 1, options.local);
  return [=](const Table& table) { return std::make_unique<Dclas>(table, options); };
}

Make bssi(Keys& keys) {
  BssiOptions options;
  keys.take("levels", 0, kMostQueues, options.levels);
  keys.take("spread", 1, 1e9, options.spread);
  return [=](const Table& table) { return std::make_unique<Bssi>(table, options); };
}

Make turns(Keys& keys) {
  TurnsOptions options;
  keys.take("credit", 0, 1e9, options.credit);
  return [=](const Table& table) { return std::make_unique<Match>(table, options); };
}

template <class T>
Make plain() {
  return [](const Table& table) { return std::make_unique<T>(table); };
}

struct Entry {
  PolicyInfo info;
  std::function<Make(Keys&, const PolicyDefaults&)> make;
};

const std::vector<Entry>& entries() {
  static const char* const kOrderedKeys = "deadlines=0 (1: in the order of arrival, what can end in time)";
  static const char* const kQueueKeys = "queues=10,first=10485760,factor=10";
  const auto madd = [](MakeOrdered make) {
    return [make](Keys& keys, const PolicyDefaults& defaults) { return ordered(make, keys, defaults); };
  };
  static const std::vector<Entry> all{
      {{"fifo", "coflows by arrival; MADD", kOrderedKeys}, madd(make_fifo)},
      {{"scf", "shortest coflow first; MADD", kOrderedKeys}, madd(make_scf)},
      {{"ncf", "narrowest coflow first; MADD", kOrderedKeys}, madd(make_ncf)},
      {{"lcf", "coflow of least bytes first; MADD", kOrderedKeys}, madd(make_lcf)},
      {{"sebf", "smallest bottleneck first (Varys); MADD", kOrderedKeys}, madd(make_sebf)},
      {{"dark", "sizes unknown, as CoflowSim does it", kQueueKeys},
       [](Keys& keys, const PolicyDefaults& defaults) { return dark(keys, defaults); }},
      {{"dclas", "sizes unknown: queues by bytes sent (Aalo), demoted at once", "queues=24,first=1e7,factor=2,local=0"},
       [](Keys& keys, const PolicyDefaults&) { return dclas(keys); }},
      {{"fair", "per flow, as CoflowSim does it: not work-conserving", ""},
       [](Keys&, const PolicyDefaults&) { return plain<Fair>(); }},
      {{"maxmin", "per flow, max-min fair: what TCP tends to", ""},
       [](Keys&, const PolicyDefaults&) { return plain<MaxMin>(); }},
      {{"pfp", "shortest flow first, greedily (pFabric), as CoflowSim does it", ""},
       [](Keys&, const PolicyDefaults&) { return plain<Pfp>(); }},
      {{"bssi", "BSSI order (Sincronia), strict priorities, max-min inside",
        "levels=0 (one for each coflow),spread=1000 (bytes of the last level over the first's)"},
       [](Keys& keys, const PolicyDefaults&) { return bssi(keys); }},
      {{"match", "ours: BSSI order, one flow at a time per port, bottlenecks first", ""},
       [](Keys&, const PolicyDefaults&) { return plain<Match>(); }},
      {{"turns", "ours for jobs: as match, but no job gets far ahead of another",
        "credit=2 (largest coflows that a job may be behind)"},
       [](Keys& keys, const PolicyDefaults&) { return turns(keys); }},
  };
  return all;
}

}  // namespace

const std::vector<PolicyInfo>& policies() {
  static const std::vector<PolicyInfo> infos = [] {
    std::vector<PolicyInfo> all;
    for (const Entry& entry : entries()) all.push_back(entry.info);
    return all;
  }();
  return infos;
}

Result<Policy> find_policy(std::string_view spec, const PolicyDefaults& defaults) {
  const std::size_t colon = std::min(spec.find(':'), spec.size());
  const std::string_view name = spec.substr(0, colon);
  const auto entry =
      std::find_if(entries().begin(), entries().end(), [&](const Entry& one) { return one.info.name == name; });
  if (entry == entries().end()) {
    std::vector<std::string_view> names;
    for (const PolicyInfo& info : policies()) names.push_back(info.name);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no policy '{}'; allowed: {}", name, fmt::join(names, ", ")));
  }
  Keys keys(name);
  if (const auto parsed = keys.parse(spec.substr(std::min(colon + 1, spec.size()))); !parsed) {
    return tl::unexpected(parsed.error());
  }
  Policy policy;
  policy.spec = std::string(spec);
  policy.make = entry->make(keys, defaults);
  policy.needs_deadlines = keys.needs_deadlines;
  if (const auto checked = keys.check(entry->info.keys); !checked) return tl::unexpected(checked.error());
  return policy;
}

}  // namespace clustar::coflow
