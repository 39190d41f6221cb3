#include "bench/trainer/aggregator.h"

#include <fmt/format.h>

#include "bench/proxy/bootstrap.h"
#include "paraexpress/api/own_transport.h"

namespace clustar::bench::trainer {

Result<paraexpress::HelperReport> run_aggregator(const AggregatorOptions& options, const std::atomic<bool>& stop) {
  const auto own = paraexpress::OwnTransport::choose(options.ranks + options.helper);
  if (!own) return tl::unexpected(own.error());
  const auto bootstrap = proxy::Bootstrap::join(
      {.rank = options.ranks + options.helper, .size = options.ranks + options.helpers, .root = options.root});
  if (!bootstrap) {
    return fail(bootstrap.error().code,
                fmt::format("{} (ranks from {} on are helpers there: this is rank {})", bootstrap.error().message,
                            options.ranks, options.ranks + options.helper));
  }
  paraexpress::HelperOptions helper;
  helper.helper = static_cast<std::uint32_t>(options.helper);
  helper.helpers = static_cast<std::uint32_t>(options.helpers);
  helper.ranks = static_cast<std::uint32_t>(options.ranks);
  helper.device = (*own)->device();
  helper.stall = options.stall_timeout;
  helper.most_bytes = options.most_bytes;
  helper.channel.job = (*own)->job();
  helper.channel.rank = options.ranks + options.helper;
  auto report = paraexpress::serve_as_helper((*own)->transport(),
                                             [&](std::span<const std::byte> mine) {
                                               auto all = (*bootstrap)->all_gather(mine);
                                               if (options.on_met) options.on_met();
                                               return all;
                                             },
                                             helper, stop);
  if (report) return report;
  std::string message = report.error().message;
  for (const std::string& warning : (*own)->take_warnings()) message += "\n  warned: " + warning;
  return fail(report.error().code, std::move(message));
}

std::vector<std::string> aggregator_arguments(const std::string& program, const ParaexpressOptions& plan, int ranks,
                                              int helper, std::chrono::milliseconds stall_timeout) {
  constexpr std::int64_t kMost = 86400;
  const std::int64_t seconds = stall_timeout.count() / 1000;
  return {program,    "aggregator",           "--root",          plan.helpers_root,
          "--helper", std::to_string(helper), "--helpers",       std::to_string(plan.helpers),
          "--ranks",  std::to_string(ranks),  "--stall-timeout", std::to_string(seconds == 0 ? kMost : seconds)};
}

}  // namespace clustar::bench::trainer
