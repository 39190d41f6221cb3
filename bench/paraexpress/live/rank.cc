#include "bench/paraexpress/live/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "bench/proxy/bootstrap.h"
#include "coflow/enforce/host_policies.h"
#include "nccl_plugin/settings/all_settings.h"
#include "paraexpress/core/probe.h"
#include "paraexpress/engine/engine.h"
#include "paraexpress/engine/helper.h"
#include "transport/api/settings.h"
#include "transport/base/system_clock.h"
#include "transport/registry.h"

namespace clustar::bench::paraexpress::live {
namespace {

// A size's slow plans are left out of later rounds: a server of 32 ranks would make them last for minutes.
constexpr double kMostSeconds = 20;

constexpr std::chrono::milliseconds kPatience{120'000};  // of helpers, while the ranks make their engines one by one
constexpr int kPort = 29611;                             // of the ranks; the contenders' that have helpers follow

std::string root_of(const std::string& address, int number) { return fmt::format("{}:{}", address, kPort + number); }

std::string regions_text(const px::Group& group, bool with_helpers) {
  px::RegionMap map = group.regions;
  if (map.regions.size() < 2) return "";
  if (!with_helpers) map.region_of.resize(group.ranks);
  return px::to_text(map, group.ranks);
}

// What this process's environment chooses; `selection` has to outlive what is sent over it.
Result<void> choose(Clock& clock, transport::Selection& selection) {
  auto config = load_settings();
  if (!config) return tl::unexpected(config.error());
  const auto order = config->get<SendOrderSettings>();
  auto policies = clustar::coflow::enforce::host_policies(order, {});
  if (!policies) return tl::unexpected(policies.error());
  auto selected = transport::select_transport({*config, clock, {}, std::move(*policies)});
  if (!selected) return tl::unexpected(selected.error());
  selection = std::move(*selected);
  return {};
}

void say(int words, Word word, const std::string& text = {}) {
  std::strncpy(word.text.data(), text.c_str(), word.text.size() - 1);
  (void)!write(words, &word, sizeof word);
}

class Rank {
 public:
  Rank(const LiveOptions& options, std::uint32_t rank, const std::string& address, int words)
      : options_(options), rank_(rank), address_(address), words_(words), contenders_(contenders(options)) {}

  Result<void> run() {
    auto bootstrap = proxy::Bootstrap::join({.rank = static_cast<int>(rank_),
                                             .size = static_cast<int>(options_.group.ranks),
                                             .root = root_of(address_, 0)});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    bootstrap_ = std::move(*bootstrap);
    if (const auto ok = choose(clock_, selection_); !ok) return ok;
    elements_.resize(*std::ranges::max_element(options_.sizes) / sizeof(float));
    regions_ = regions_text(options_.group, false);
    if (options_.probe) {
      if (const auto ok = probe(); !ok) return ok;
    }
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      const Contender& one = contenders_[i];
      const auto ok = start(one, root_of(address_, static_cast<int>(i) + 1));
      if (!ok) return fail(ok.error().code, "plan " + one.name + ": " + ok.error().message);
    }
    // The first round opens windows and learns paths; it is not measured.
    for (int round = -1; round < options_.rounds; ++round) {
      for (std::uint32_t size = 0; size < options_.sizes.size(); ++size) {
        for (std::uint32_t i = 0; i < contenders_.size(); ++i) {
          // In turns: none is always behind the same one.
          const auto which =
              static_cast<std::uint32_t>((i + static_cast<std::uint32_t>(round + 1)) % contenders_.size());
          if (const auto ok = once(round, size, which); !ok) {
            return fail(ok.error().code, fmt::format("plan {}, {} bytes: {}", contenders_[which].name,
                                                     options_.sizes[size], ok.error().message));
          }
        }
      }
    }
    // Others may still receive: nobody closes before all are done.
    if (const auto ok = bootstrap_->barrier(); !ok) return ok;
    for (const auto& engine : engines_) engine->close();
    return {};
  }

 private:
  Result<void> probe() {
    px::EngineOptions options;
    options.rank = rank_;
    options.ranks = options_.group.ranks;
    options.regions = px::kProbeRegions;
    auto engine = make(options, *bootstrap_);
    if (!engine) return fail(engine.error().code, "probing: " + engine.error().message);
    regions_ = (*engine)->regions();
    if (rank_ == 0) say(words_, {Word::Kind::kFound, rank_, 0, 0, 0}, regions_);
    if (const auto ok = bootstrap_->barrier(); !ok) return ok;
    (*engine)->close();
    return {};
  }

  Result<std::unique_ptr<px::Engine>> make(const px::EngineOptions& options, proxy::Bootstrap& all) {
    return px::Engine::create(
        *selection_.transport, [&](std::span<const std::byte> mine) { return all.all_gather(mine); }, options);
  }

  // `root`: where it meets helpers.
  Result<void> start(const Contender& one, const std::string& root) {
    px::EngineOptions engine;
    engine.rank = rank_;
    engine.ranks = options_.group.ranks;
    if (one.knows_regions) engine.regions = regions_;
    if (!one.plan.empty()) engine.plan = px::plan_of(one.plan);
    std::unique_ptr<proxy::Bootstrap> with_helpers;
    if (one.has_helpers) {
      engine.helpers = options_.group.helpers;
      engine.regions = regions_text(options_.group, true);
      auto joined = proxy::Bootstrap::join(
          {.rank = static_cast<int>(rank_), .size = static_cast<int>(options_.group.members()), .root = root});
      if (!joined) return tl::unexpected(joined.error());
      with_helpers = std::move(*joined);
    }
    auto made = make(engine, with_helpers ? *with_helpers : *bootstrap_);
    if (!made) return tl::unexpected(made.error());
    engines_.push_back(std::move(*made));
    left_out_.emplace_back(options_.sizes.size());
    return engines_.back()->add_memory(elements_.data(), elements_.size() * sizeof(float));
  }

  Result<void> once(int round, std::uint32_t size, std::uint32_t which) {
    if (left_out_[which][size]) return {};
    const std::size_t count = options_.sizes[size] / sizeof(float);
    const float ranks = static_cast<float>(options_.group.ranks);
    std::fill_n(elements_.begin(), count, static_cast<float>(rank_ + 1));
    if (const auto ok = bootstrap_->barrier(); !ok) return ok;
    const auto seconds = engines_[which]->all_reduce(elements_.data(), count, px::DataType::kFloat32)->wait();
    if (!seconds) return tl::unexpected(seconds.error());
    const float sum = ranks * (ranks + 1) / 2;
    if (!std::all_of(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(count),
                     [&](float element) { return element == sum; })) {
      return fail(ErrorCode::kInternal, "a wrong sum");
    }
    const auto all = bootstrap_->all_gather(std::as_bytes(std::span(&*seconds, 1)));
    if (!all) return tl::unexpected(all.error());
    double slowest = 0;
    for (std::size_t at = 0; at + sizeof(double) <= all->size(); at += sizeof(double)) {
      double one;
      std::memcpy(&one, all->data() + at, sizeof one);
      slowest = std::max(slowest, one);
    }
    left_out_[which][size] = slowest > kMostSeconds;
    if (rank_ != 0 || round < 0) return {};
    say(words_, {Word::Kind::kTime, rank_, size, which, slowest});
    if (contenders_[which].plan.empty() && round == 0) {
      say(words_, {Word::Kind::kChosen, rank_, size, which, 0},
          px::to_string(engines_[which]->plan_for(options_.sizes[size])));
    }
    return {};
  }

  const LiveOptions& options_;
  const std::uint32_t rank_;
  const std::string address_;
  const int words_;
  const std::vector<Contender> contenders_;
  SystemClock clock_;
  std::unique_ptr<proxy::Bootstrap> bootstrap_;
  transport::Selection selection_;
  std::string regions_;
  std::vector<float> elements_;
  std::vector<std::unique_ptr<px::Engine>> engines_;  // by contender
  std::vector<std::vector<bool>> left_out_;           // by contender and size
};

// Serves each contender that has helpers, until the ranks close its engine.
class Helper {
 public:
  Helper(const LiveOptions& options, px::Member member, const std::string& address)
      : options_(options), member_(member), address_(address) {}

  Result<void> run() {
    if (const auto ok = choose(clock_, selection_); !ok) return ok;
    const std::vector<Contender> all = contenders(options_);
    std::vector<Result<void>> served(all.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].has_helpers) threads.emplace_back([&, i] { served[i] = serve(static_cast<int>(i) + 1); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!served[i]) return fail(served[i].error().code, "plan " + all[i].name + ": " + served[i].error().message);
    }
    return {};
  }

 private:
  Result<void> serve(int number) {
    const auto bootstrap = proxy::Bootstrap::join({.rank = static_cast<int>(member_),
                                                   .size = static_cast<int>(options_.group.members()),
                                                   .root = root_of(address_, number),
                                                   .join_timeout = kPatience});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    px::HelperOptions helper;
    helper.helper = member_ - options_.group.ranks;
    helper.helpers = options_.group.helpers;
    helper.ranks = options_.group.ranks;
    const auto report = px::serve_as_helper(
        *selection_.transport, [&](std::span<const std::byte> mine) { return (*bootstrap)->all_gather(mine); }, helper,
        never_);
    return report ? Result<void>() : tl::unexpected(report.error());
  }

  const LiveOptions& options_;
  const px::Member member_;
  const std::string address_;
  const std::atomic<bool> never_{false};
  SystemClock clock_;
  transport::Selection selection_;
};

}  // namespace

std::vector<Contender> all_contenders(const px::Group& group) {
  std::vector<Contender> all;
  for (const px::Plan plan : px::kPlans) {
    if (!px::makes_sense(plan, group)) continue;
    all.push_back({px::to_string(plan), px::to_string(plan), true, plan == px::Plan::kSharded});
  }
  if (!std::ranges::is_sorted(group.order)) all.push_back({"ring by number", px::to_string(px::Plan::kRing), false});
  all.push_back({"auto", "", true, group.helpers > 0});
  return all;
}

std::vector<Contender> contenders(const LiveOptions& options) {
  std::vector<Contender> some = all_contenders(options.group);
  if (options.only.empty()) return some;
  std::erase_if(some,
                [&](const Contender& one) { return std::ranges::find(options.only, one.name) == options.only.end(); });
  return some;
}

int be_member(const LiveOptions& options, px::Member member, const std::string& address, int words) {
  const auto ok = member < options.group.ranks ? Rank(options, member, address, words).run()
                                               : Helper(options, member, address).run();
  if (!ok) say(words, {Word::Kind::kFailed, member, 0, 0, 0}, ok.error().message);
  return ok ? 0 : 1;
}

}  // namespace clustar::bench::paraexpress::live
