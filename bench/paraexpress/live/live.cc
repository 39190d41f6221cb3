#include "bench/paraexpress/live/live.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "bench/fabric/fabric.h"
#include "bench/fabric/process_fabric.h"
#include "bench/paraexpress/live/rank.h"
#include "bench/perf/process.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::paraexpress::live {
namespace {

constexpr const char* kPrefix = "plan";

std::uint64_t uplink_of(const LiveOptions& options, const px::Region& region) {
  return static_cast<std::uint64_t>(static_cast<double>(options.rate_bps) * region.hosts / region.oversubscription);
}

fabric::FabricSpec spec_of(const LiveOptions& options) {
  fabric::FabricSpec spec;
  spec.name = fabric::process_fabric_name(kPrefix);
  const px::RegionMap& map = options.group.regions;
  spec.hosts = static_cast<int>(options.group.members());
  spec.rate_bps = options.rate_bps;
  spec.delay_ns = options.delay_ns;
  if (map.regions.size() < 2) return spec;
  spec.switches.emplace_back("spine0");
  for (std::size_t i = 0; i < map.regions.size(); ++i) {
    const px::Region& region = map.regions[i];
    if (std::ranges::find(map.region_of, i) == map.region_of.end()) continue;
    const std::string leaf = fmt::format("leaf{}", i);
    spec.switches.push_back(leaf);
    fabric::LinkSpec link{leaf, "spine0"};
    link.rate_bps = std::min(uplink_of(options, region), fabric::kMaxRateBps);
    link.delay_ns = options.delay_ns;
    spec.links.push_back(link);
  }
  for (px::Member member = 0; member < options.group.members(); ++member) {
    fabric::LinkSpec link{fabric::host_name(static_cast<int>(member)), fmt::format("leaf{}", map.region_of[member])};
    link.rate_bps = options.rate_bps;
    link.delay_ns = options.delay_ns;
    spec.links.push_back(link);
  }
  return spec;
}

std::string name_of(const px::Group& group, px::Member member) {
  return member < group.ranks ? fmt::format("rank {}", member) : fmt::format("helper {}", member - group.ranks);
}

class Measurement {
 public:
  Measurement(const LiveOptions& options, const Say& say) : options_(options), say_(say) {}
  ~Measurement() {
    members_.clear();
    if (!fabric_) return;
    if (const auto removed = fabric_->down(); !removed) {
      say_(fmt::format("cannot remove its fabric: {}; try: clustar fabric down --name {}", removed.error().message,
                       fabric_->spec().name));
    }
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  Result<LiveResult> run();

 private:
  Result<void> start();
  int be_child(px::Member member, int words);
  Result<void> hear(const Word& word);

  const LiveOptions& options_;
  const Say& say_;
  std::unique_ptr<fabric::Fabric> fabric_{};
  FileDescriptor words_{};
  std::vector<perf::Process> members_{};
  std::vector<LiveSize> sizes_{};
  std::string found_{};
  std::size_t round_ = 0;
};

int Measurement::be_child(px::Member member, int words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Ctrl-C is the parent's to see.
  (void)signal(SIGINT, SIG_IGN);
  (void)signal(SIGHUP, SIG_IGN);
  (void)signal(SIGTERM, SIG_DFL);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (const auto ok = fabric_->enter_process(static_cast<int>(member)); !ok) return 2;
  setenv("CLUSTAR_SOCKET_IFNAME", fabric::kHostInterface, 1);
  setenv("CLUSTAR_LINE_MBPS", std::to_string(std::max<std::uint64_t>(1, options_.rate_bps / 1'000'000)).c_str(), 1);
  for (const auto& [name, value] : options_.environment) setenv(name.c_str(), value.c_str(), 1);
  return be_member(options_, member, fabric_->address(0), words);
}

Result<void> Measurement::start() {
  if (const auto ok = fabric::check_root(); !ok) return ok;
  for (const std::string& problem : fabric::remove_orphans(kPrefix)) say_("left of an earlier run: " + problem);
  auto made = fabric::Fabric::up(spec_of(options_));
  if (!made) return tl::unexpected(made.error());
  fabric_ = std::make_unique<fabric::Fabric>(std::move(*made));
  int ends[2];
  if (pipe(ends) != 0) return fail(ErrorCode::kSystem, "pipe failed");
  words_ = FileDescriptor(ends[0]);
  const FileDescriptor writes(ends[1]);
  for (px::Member member = 0; member < options_.group.members(); ++member) {
    const pid_t pid = fork();
    if (pid < 0) return fail(ErrorCode::kSystem, "fork failed");
    if (pid == 0) _exit(be_child(member, writes.fd()));
    members_.emplace_back(pid);
  }
  return {};
}

Result<void> Measurement::hear(const Word& word) {
  if (word.kind == Word::Kind::kFailed) {
    return fail(ErrorCode::kRemote, fmt::format("{} says: {}", name_of(options_.group, word.rank), word.text.data()));
  }
  if (word.kind == Word::Kind::kFound) {
    found_ = word.text.data();
    return {};
  }
  LiveRow& row = sizes_[word.size].rows[word.contender];
  if (word.kind == Word::Kind::kChosen) {
    row.chosen = word.text.data();
    return {};
  }
  row.seconds.push_back(word.seconds);
  if (row.seconds.size() > round_) say_(fmt::format("round {} of {}", ++round_, options_.rounds));
  return {};
}

Result<LiveResult> Measurement::run() {
  for (const std::uint64_t bytes : options_.sizes) {
    sizes_.push_back({bytes, {}});
    for (const Contender& one : contenders(options_)) sizes_.back().rows.push_back({one.name, {}, {}});
  }
  if (const auto ok = start(); !ok) return tl::unexpected(ok.error());
  // The ranks' waits are bounded, each by its own limit; the pipe ends with the last of them.
  for (;;) {
    pollfd ready{words_.fd(), POLLIN, 0};
    (void)poll(&ready, 1, 100);
    if (options_.stop && options_.stop()) return fail(ErrorCode::kUnavailable, "interrupted");
    if (ready.revents == 0) continue;
    Word word;
    const ssize_t got = read(words_.fd(), &word, sizeof word);
    if (got != static_cast<ssize_t>(sizeof word)) break;
    if (const auto ok = hear(word); !ok) return tl::unexpected(ok.error());
  }
  for (px::Member member = 0; member < members_.size(); ++member) {
    const std::string how = members_[member].ended(std::chrono::seconds(5));
    if (how.empty() || how == "ended with exit status 0") continue;
    return fail(ErrorCode::kRemote, fmt::format("{}: its process {}", name_of(options_.group, member), how));
  }
  return LiveResult{std::move(found_), std::move(sizes_)};
}

}  // namespace

Result<LiveResult> measure(const LiveOptions& options, const Say& say) {
  if (options.group.helpers > kMostHelpers || (options.probe && options.group.helpers > 0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} helpers; allowed with --live: 0 to {}, and none with --regions probe",
                            options.group.helpers, kMostHelpers));
  }
  if (options.group.ranks < 2 || options.group.ranks > kMostRanks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks; allowed with --live: 2 to {}", options.group.ranks, kMostRanks));
  }
  for (const std::uint64_t bytes : options.sizes) {
    if (bytes >= sizeof(float) && bytes <= kMostBytes) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} bytes; allowed with --live: 4 to {}", bytes, kMostBytes));
  }
  for (const px::Region& region : options.group.regions.regions) {
    if (options.group.regions.regions.size() < 2 || uplink_of(options, region) >= fabric::kMinRateBps) continue;
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the uplink of region '{}' has {} bit/s; allowed with --live: {} or more, by --bandwidth and "
                    "oversubscription",
                    region.name, uplink_of(options, region), fabric::kMinRateBps));
  }
  const std::vector<Contender> all = all_contenders(options.group);
  std::vector<std::string> names;
  for (const Contender& one : all) names.push_back(one.name);
  for (const std::string& name : options.only) {
    if (std::ranges::find(names, name) != names.end()) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("plan '{}'; allowed for these ranks: {}", name, fmt::join(names, ", ")));
  }
  return Measurement(options, say).run();
}

}  // namespace clustar::bench::paraexpress::live
