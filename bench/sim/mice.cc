// Small messages beside eight streams of large ones between the same two hosts.
#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"
#include "transport/base/rng.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint32_t kMouse = 1 << 10;
constexpr std::uint32_t kElephant = 1 << 20;
constexpr std::uint32_t kElephants = 8;
constexpr std::uint32_t kOutstanding = 4;  // of each elephant
constexpr std::int32_t kMouseTag = 1;

enum class Company : std::uint8_t { kNone, kOtherConnections, kSameConnection };

void mouse_times(Company company, std::uint32_t mice, std::uint64_t seed, std::vector<double>& times) {
  Setup setup;
  setup.seed = seed;
  Testbed bed(setup);
  Rng rng(seed);
  std::vector<std::uint32_t> elephants;
  for (std::uint32_t i = 0; company != Company::kNone && i < kElephants; ++i) elephants.push_back(bed.connect(0, 1));
  const std::uint32_t lane = company == Company::kSameConnection ? elephants[0] : bed.connect(0, 1);
  std::uint32_t done = 0;
  // Up to two round trips after the one before is done, so that it meets the elephants at any moment.
  const auto next = [&] {
    const auto pause = Duration(static_cast<Duration::rep>(rng.below(2 * kRoundTrip.count())));
    bed.simulation().at(bed.now() + pause, [&] { bed.transfer(lane, kMouse, {}, kMouseTag); });
  };
  bed.on_done([&](const Done& what) {
    if (what.tag != kMouseTag) return bed.transfer(what.lane, kElephant);
    times.push_back(microseconds(what.at - what.posted));
    if (++done < mice) next();
  });
  for (const std::uint32_t elephant : elephants) {
    for (std::uint32_t i = 0; i < kOutstanding; ++i) bed.transfer(elephant, kElephant);
  }
  bed.simulation().run_for(std::chrono::milliseconds(5));  // the elephants have found their rates
  next();
  while (done < mice && bed.now() < TimePoint(std::chrono::seconds(2))) {
    if (!bed.simulation().step()) break;
  }
}

}  // namespace

Rows run_mice(const Settings& settings) {
  const std::uint32_t mice = settings.amount(500, 5000, 50000);
  const struct {
    const char* name;
    Company company;
  } situations[] = {{"idle", Company::kNone},
                    {"8 elephants, other connections", Company::kOtherConnections},
                    {"8 elephants, one on its connection", Company::kSameConnection}};
  Rows rows;
  double idle = 0;
  for (const auto& situation : situations) {
    settings.progress(situation.name);
    std::vector<double> times;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) mouse_times(situation.company, mice, settings.seed + i, times);
    const double p99 = quantile(times, 0.99);
    if (situation.company == Company::kNone) idle = p99;
    Row row(situation.name, "1 KiB");
    row.add("messages", static_cast<double>(times.size())).add("p50_us", quantile(times, 0.5)).add("p99_us", p99);
    if (situation.company != Company::kNone) row.add("p99_of_idle", p99 / idle).at_most(3);
    row.add("max_us", quantile(times, 1));
    rows.push_back(row);
  }
  return rows;
}

}  // namespace clustar::bench::sim
