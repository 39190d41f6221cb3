#include "bench/perf/perf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "bench/perf/arm.h"

namespace clustar::bench::perf {
namespace {

using nlohmann::json;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr const char* kCongestion = "CLUSTAR_TCP_CONGESTION";
constexpr std::array kAllTests = {Test::kLatency, Test::kBandwidth, Test::kRate,
                                  Test::kIncast,  Test::kMixed,     Test::kBusbw};

std::vector<std::size_t> own_sizes(Test test) {
  switch (test) {
    case Test::kLatency: return {8, kKiB, 64 * kKiB};
    case Test::kBandwidth: return {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB};
    case Test::kRate: return {4 * kKiB};
    case Test::kIncast: return {64 * kKiB};
    case Test::kMixed: return {16 * kKiB};
    case Test::kBusbw: return {kMiB, 64 * kMiB};
  }
  return {};
}

Loop loop_of(Test test) {
  switch (test) {
    case Test::kLatency: return Loop::kPingPong;
    case Test::kIncast: return Loop::kIncast;
    case Test::kMixed: return Loop::kMixed;
    default: return Loop::kStream;
  }
}

bool is_limit(const Arm& arm) { return arm.name() == "L" || arm.name() == "U"; }

void add_loss(ArmValues& values, const SampleResult& sample) {
  values.lost.packets += sample.lost.packets;
  values.lost.bytes += sample.lost.bytes;
  values.delivered_bytes += sample.delivered_bytes;
}

bool has_limit(Test test) { return test == Test::kLatency || test == Test::kBandwidth; }
bool has_cpu(Test test) { return test == Test::kBandwidth || test == Test::kRate; }

// Fewest repetitions that a sample's figure can be taken from.
std::uint64_t least_count(Test test, const Options& options) {
  switch (test) {
    case Test::kMixed: return options.elephants == 0 ? 100 : kPosted;
    case Test::kLatency: return 100;
    case Test::kIncast:
      return static_cast<std::uint64_t>((100 + options.senders - 1) / options.senders);  // a p99 needs 100 messages
    case Test::kBusbw: return 1;
    default: return 8;  // as many as are posted
  }
}

// What is compared in a row.
double figure(const Row& row, std::uint64_t count, const SampleResult& sample) {
  switch (row.test) {
    case Test::kLatency: return sample.p50_us;
    case Test::kIncast:
    case Test::kMixed: return sample.p99_us;
    case Test::kRate: return static_cast<double>(count) / sample.seconds / 1e3;
    case Test::kBandwidth:
    case Test::kBusbw: return sample.gbps();
  }
  return 0;
}

class Run {
 public:
  Run(const Options& options, const Events& events) : options_(options), events_(events) {}

  Result<Report> all() {
    if (auto ok = start(); !ok) return tl::unexpected(ok.error());
    if (events_.on_start) events_.on_start(report_.arms);
    for (const Row& row : plan(options_)) {
      auto result = measure(row);
      if (!result) {
        Error error = result.error();
        error.message = fmt::format("{} of {} bytes: {}", to_string(row.test), row.bytes, error.message);
        return tl::unexpected(std::move(error));
      }
      report_.rows.push_back(std::move(*result));
      if (events_.on_row) events_.on_row(report_.rows.back());
    }
    if (auto ok = change_busbw(false); !ok) return tl::unexpected(ok.error());
    for (const auto& arm : arms_) {
      if (auto ok = stop(*arm); !ok) report_.warnings.push_back("closing: " + ok.error().message);
    }
    return std::move(report_);
  }

 private:
  struct Lane {
    std::size_t arm_index = 0;
    Arm* arm = nullptr;
    ArmValues values;
    std::vector<double> seconds;
  };

  Result<void> start() {
    const auto rows = plan(options_);
    const auto any = [&](auto&& predicate) { return std::any_of(rows.begin(), rows.end(), predicate); };
    ArmOptions common;
    common.congestion = options_.congestion;
    common.pin = options_.pin;
    common.timeout = options_.timeout;
    common.executable = options_.executable;
    common.server = options_.server;
    const bool mixes = any([](const Row& row) { return row.test == Test::kMixed; });
    common.elephants = mixes ? options_.elephants : 0;
    common.gap = std::chrono::microseconds(std::llround(options_.gap_ms * 1e3));
    common.senders = any([](const Row& row) { return row.test == Test::kIncast; }) ? options_.senders : 1;
    const auto add = [&](const char* key, const char* name, const std::optional<PluginSpec>& plugin) -> Result<void> {
      ArmOptions own = common;
      own.name = name;
      own.plugin = plugin;
      own.streams = options_.limit_streams;
      own.udp = own.name == "U";
      if (!plugin) own.senders = 1, own.elephants = 0;
      // Otherwise the hook and the plugin would each set one of its own, and listeners and connections differ.
      if (plugin && plugin->environment.count(kCongestion) > 0) own.congestion = plugin->environment.at(kCongestion);
      auto arm = Arm::start(own);
      if (!arm) return tl::unexpected(arm.error());
      report_.arms[key] = (*arm)->description();
      report_.arms[key]["notes"] = json::array();
      arms_.push_back(std::move(*arm));
      arm_options_.push_back(std::move(own));
      return {};
    };
    if (auto ok = add("a", "A", options_.a); !ok) return ok;
    if (options_.b) {
      if (auto ok = add("b", "B", *options_.b); !ok) return ok;
    }
    if (any([](const Row& row) { return has_limit(row.test); })) {
      if (options_.limit_tcp) {
        if (auto ok = add("limit", "L", std::nullopt); !ok) return ok;
      }
      if (options_.limit_udp) {
        if (auto ok = add("limit_udp", "U", std::nullopt); !ok) return ok;
      }
    }
    for (std::size_t i = 0; i < arms_.size(); ++i) check_terms(i);
    return {};
  }

  // The words of the last processes of each arm stay in the report.
  Result<void> stop(Arm& arm) {
    auto ok = arm.stop();
    if (is_limit(arm)) return ok;
    const json& ends = arm.description();
    for (const char* end : {"receiver", "sender"}) {
      report_.arms[arm.name() == "B" ? "b" : "a"][end]["last_words"] = ends[end].value("last_words", json::array());
    }
    return ok;
  }

  // Of every pair of processes; said once.
  void check_terms(std::size_t index) {
    const Arm& arm = *arms_[index];
    const std::string& wanted = arm_options_[index].congestion;
    if (wanted.empty()) return;
    const std::string used = arm.description().value("congestion_control", "");
    if (arm.description().value("tcp_sockets", 0) == 0 || arm.has_own_congestion() || used == wanted) return;
    std::string warning = fmt::format(
        "arm {} has TCP sockets with congestion control {}, not only {}: it is "
        "not on equal terms",
        arm.name(), used, wanted);
    auto& said = report_.warnings;
    if (std::find(said.begin(), said.end(), warning) == said.end()) said.push_back(std::move(warning));
  }

  // The communicators have threads of their own and exist only while they are measured.
  Result<void> change_busbw(bool open) {
    if (open == busbw_open_) return {};
    busbw_open_ = open;
    for (const auto& arm : arms_) {
      if (is_limit(*arm)) continue;
      if (auto ok = open ? arm->busbw_open() : arm->busbw_close(); !ok) return ok;
    }
    return {};
  }

  Result<SampleResult> sample(Lane& lane, const Row& row, bool spin) {
    const std::uint64_t seed = options_.seed * 1'000'000 + ++samples_;
    if (row.test == Test::kBusbw) return lane.arm->busbw_sample(row.bytes, lane.values.count, seed);
    auto sample = lane.arm->sample(lane.values.count, seed, spin);
    if (sample) add_loss(lane.values, *sample);
    if (sample && sample->unsized > 0) {
      json& notes = report_.arms[lane.arm->name() == "B" ? "b" : "a"]["notes"];
      if (notes.empty()) notes.push_back("test does not report received sizes");
    }
    return sample;
  }

  // Finds the count for a sample of the wanted length, and warms up on the way.
  Result<void> calibrate(Lane& lane, const Row& row) {
    const std::uint64_t least = least_count(row.test, options_);
    lane.values.count = least;
    for (int attempt = 0; attempt < 12; ++attempt) {
      const auto tried = sample(lane, row, true);
      if (!tried) return tl::unexpected(tried.error());
      const double factor = options_.seconds / std::max(tried->seconds, 1e-7);
      const double wanted = std::ceil(static_cast<double>(lane.values.count) * std::min(factor, 50.0));
      lane.values.count = std::clamp(static_cast<std::uint64_t>(wanted), least, kMaxCount);
      if (factor < 4) break;
    }
    return {};
  }

  Result<void> measure_lane(Lane& lane, const Row& row) {
    const auto timed = sample(lane, row, true);
    if (!timed) return tl::unexpected(timed.error());
    lane.values.values.push_back(figure(row, lane.values.count, *timed));
    lane.values.gbps.push_back(timed->gbps());
    lane.values.histogram.merge(timed->histogram);
    lane.seconds.push_back(timed->seconds);
    if (!has_cpu(row.test)) return {};
    lane.values.cpu_spinning.push_back(timed->cpu_s / (timed->delivered_bytes * 8e-9));
    const auto slept = sample(lane, row, false);
    if (!slept) return tl::unexpected(slept.error());
    lane.values.cpu_sleeping.push_back(slept->cpu_s / (slept->delivered_bytes * 8e-9));
    return {};
  }

  // New processes, since where a process's memory and sockets happen to lie may favour it for its whole life: what
  // repeats within a run but not between runs would make the interval too narrow.
  // All old ones end before the first new one starts, or each arm would inherit its own memory.
  void retire(Lane& lane, const Row& row) {
    auto& arm = arms_[lane.arm_index];
    auto ok = row.test == Test::kBusbw ? arm->busbw_close() : Result<void>();
    if (ok) ok = stop(*arm);
    if (!ok) report_.warnings.push_back("closing: " + ok.error().message);
    lane.arm = nullptr;
  }

  Result<void> renew(Lane& lane, const Row& row) {
    auto& arm = arms_[lane.arm_index];
    arm.reset();
    auto fresh = Arm::start(arm_options_[lane.arm_index]);
    if (!fresh) return tl::unexpected(fresh.error());
    arm = std::move(*fresh);
    lane.arm = arm.get();
    check_terms(lane.arm_index);
    if (row.test == Test::kBusbw) return arm->busbw_open();
    return arm->prepare(loop_of(row.test), row.bytes);
  }

  // A quarter of a sample. When that shows that the count is far off, because something disturbed the calibration, the
  // count follows.
  Result<void> warm_up(Lane& lane, const Row& row) {
    const std::uint64_t least = least_count(row.test, options_);
    const std::uint64_t count = lane.values.count;
    lane.values.count = std::max(least, count / 4);
    const auto warm = sample(lane, row, true);
    const double part = static_cast<double>(lane.values.count) / static_cast<double>(count);
    lane.values.count = count;
    if (!warm) return tl::unexpected(warm.error());
    const double factor = options_.seconds * part / std::max(warm->seconds, 1e-7);
    if (factor > 0.25 && factor < 4) return {};
    const double wanted = std::ceil(static_cast<double>(count) * std::min(factor, 50.0));
    lane.values.count = std::clamp(static_cast<std::uint64_t>(wanted), least, kMaxCount);
    return {};
  }

  Result<RowResult> measure(const Row& row) {
    const bool busbw = row.test == Test::kBusbw;
    if (auto ok = change_busbw(busbw); !ok) return tl::unexpected(ok.error());
    std::vector<Lane> lanes;
    for (std::size_t i = 0; i < arms_.size(); ++i) {
      if (is_limit(*arms_[i]) && !has_limit(row.test)) continue;
      lanes.push_back({i, arms_[i].get(), {}, {}});
    }
    const auto step = [&](const std::string& what) {
      if (events_.on_step) events_.on_step(row, what);
    };
    for (Lane& lane : lanes) {
      step(fmt::format("arm {} warms up", lane.arm->name()));
      if (busbw) continue;
      if (auto ok = lane.arm->prepare(loop_of(row.test), row.bytes); !ok) return tl::unexpected(ok.error());
    }
    for (Lane& lane : lanes) {
      if (auto ok = calibrate(lane, row); !ok) return tl::unexpected(ok.error());
    }
    OtherCpuSum others;
    for (int round = 0; round < options_.rounds; ++round) {
      if (auto ok = measure_round(lanes, row, round, step, others); !ok) return tl::unexpected(ok.error());
    }
    for (Lane& lane : lanes) {
      if (busbw) continue;
      if (auto ok = lane.arm->release(); !ok) return tl::unexpected(ok.error());
    }
    RowResult result = compare(row, std::move(lanes));
    result.other_cpu = others.here;
    result.other_cpu_server = others.server;
    return result;
  }

  // One pair: A B, then B A, in starting as in measuring, so that what drifts in one direction favours neither.
  template <class Step>
  Result<void> measure_round(std::vector<Lane>& lanes, const Row& row, int round, const Step& step,
                             OtherCpuSum& others) {
    const auto each = [&](auto&& action) -> Result<void> {
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        Lane& lane = lanes[round % 2 == 0 ? i : lanes.size() - 1 - i];
        if (auto ok = action(lane); !ok) return ok;
      }
      return {};
    };
    for (Lane& lane : lanes) retire(lane, row);
    if (auto ok = each([&](Lane& lane) { return renew(lane, row); }); !ok) return ok;
    const auto watch = begin_watch();
    if (!watch) return tl::unexpected(watch.error());
    if (auto ok = each([&](Lane& lane) { return warm_up(lane, row); }); !ok) return ok;
    auto ok = each([&](Lane& lane) {
      step(fmt::format("round {} of {}, arm {}", round + 1, options_.rounds, lane.arm->name()));
      return measure_lane(lane, row);
    });
    return ok ? end_watch(*watch, row, others) : ok;
  }

  // This process, then all workers.
  Result<std::vector<Usage>> usages() const {
    std::vector<Usage> all{usage_now()};
    for (const auto& arm : arms_) {
      auto workers = arm->usage();
      if (!workers) return tl::unexpected(workers.error());
      all.insert(all.end(), workers->begin(), workers->end());
    }
    return all;
  }

  struct Watch {
    std::vector<Usage> before;
    Clock::time_point begin;
  };
  Result<Watch> begin_watch() const {
    auto before = usages();
    if (!before) return tl::unexpected(before.error());
    return Watch{std::move(*before), Clock::now()};
  }

  // Of the round that ends; `sums` averages over the row, because the kernel's ticks are coarse.
  Result<void> end_watch(const Watch& watch, const Row& row, OtherCpuSum& sums) const {
    const auto after = usages();
    if (!after) return tl::unexpected(after.error());
    const double seconds = std::chrono::duration<double>(Clock::now() - watch.begin).count();
    std::vector<Party> parties{{watch.before.front(), after->front(), {}}};
    for (const auto& arm : arms_) {
      for (std::size_t rank = 0; rank < arm->cores().size(); ++rank) {
        const std::size_t i = parties.size();
        const bool measures = rank < 2 || row.test == Test::kIncast;
        parties.push_back({watch.before.at(i), after->at(i), measures ? arm->cores()[rank] : std::vector<int>()});
      }
    }
    const std::string here = parties.front().before.machine;
    add(sums.here, other_cpu(parties, here, seconds));
    for (const Party& party : parties) {
      if (party.before.machine == here) continue;
      add(sums.server, other_cpu(parties, party.before.machine, seconds));
      break;
    }
    return {};
  }

  RowResult compare(const Row& row, std::vector<Lane> lanes) const {
    RowResult result;
    result.row = row;
    for (Lane& lane : lanes) {
      lane.values.sample_seconds = median(lane.seconds);
      if (lane.arm->name() == "A")
        result.a = std::move(lane.values);
      else if (lane.arm->name() == "B")
        result.b = std::move(lane.values);
      else if (lane.arm->name() == "L")
        result.limit = std::move(lane.values);
      else
        result.limit_udp = std::move(lane.values);
    }
    if (result.b) result.ratio = paired_ratio(result.a.values, result.b->values, options_.seed);
    if (result.limit) result.limit_ratio = paired_ratio(result.a.values, result.limit->values, options_.seed);
    if (result.limit_udp) {
      result.limit_udp_ratio = paired_ratio(result.a.values, result.limit_udp->values, options_.seed);
    }
    return result;
  }

  const Options& options_;
  const Events& events_;
  Report report_;
  std::vector<std::unique_ptr<Arm>> arms_;
  std::vector<ArmOptions> arm_options_;  // of each, to start it again
  bool busbw_open_ = false;
  std::uint64_t samples_ = 0;
};

}  // namespace

const char* to_string(Test test) {
  switch (test) {
    case Test::kLatency: return "latency";
    case Test::kBandwidth: return "bandwidth";
    case Test::kRate: return "rate";
    case Test::kIncast: return "incast";
    case Test::kMixed: return "mixed";
    case Test::kBusbw: return "busbw";
  }
  return "?";
}

std::optional<Test> parse_test(const std::string& name) {
  for (const Test test : kAllTests) {
    if (name == to_string(test)) return test;
  }
  return std::nullopt;
}

const char* unit_of(Test test) {
  switch (test) {
    case Test::kLatency:
    case Test::kIncast:
    case Test::kMixed: return "us";
    case Test::kRate: return "kmsg/s";
    default: return "Gbit/s";
  }
}

bool lower_is_better(Test test) { return unit_of(test) == std::string_view("us"); }

std::vector<Row> plan(const Options& options) {
  std::vector<Row> rows;
  for (const Test test : kAllTests) {
    const auto& wanted = options.tests;
    // It needs a line that is slow enough to be full: only where it is asked for.
    if (wanted.empty() ? test == Test::kMixed : std::find(wanted.begin(), wanted.end(), test) == wanted.end()) continue;
    for (const std::size_t bytes : options.bytes.empty() ? own_sizes(test) : options.bytes)
      rows.push_back({test, bytes});
  }
  return rows;
}

Result<Report> run(const Options& options, const Events& events) { return Run(options, events).all(); }

}  // namespace clustar::bench::perf
