// A newcomer's way in.
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "paraexpress/elastic/elastic.h"
#include "paraexpress/elastic/invitation.h"
#include "transport/rendezvous/door.h"

namespace clustar::paraexpress {
namespace {

using rendezvous::Deadline;
using std::chrono::steady_clock;

struct Attempt {
  EngineOptions options{};
  std::unique_ptr<Engine> engine{};
};

constexpr const char* kNotAll = "not all ranks and newcomers could reach each other";
// No door holds a newcomer up for longer, whatever it says.
constexpr Duration kMostVerdict = std::chrono::minutes(10);
// Between one try and the next, so that those who wait are ahead of who was refused.
constexpr std::chrono::milliseconds kPause(200);

// Of one that is invited. Error: not this time.
Result<Attempt> follow(transport::Transport& transport, const rendezvous::DoorLine& line, const EngineOptions& options,
                       std::span<const std::byte> invitation) {
  const auto theirs = invited(invitation, options);
  if (!theirs) return fail(ErrorCode::kRemote, "its invitation makes no sense; do all ranks have the same version?");
  // Rank 0 waits for each newcomer, and then the members build for a while.
  const auto soon = [&](int times) -> Deadline { return steady_clock::now() + times * theirs->setup; };
  // Each member may be as late in its vote as in an operation.
  const auto voted = [&] { return std::min(theirs->stall, kMostVerdict) + 6 * theirs->setup; };
  auto engine = Engine::create(
      transport,
      [&](std::span<const std::byte> mine) -> Result<std::vector<std::byte>> {
        if (const auto ok = line.say(mine, soon(1)); !ok) return tl::unexpected(ok.error());
        auto rows = line.hear(mine.size() * theirs->ranks, soon(3));
        // A refusal is shorter.
        if (rows && rows->size() != mine.size() * theirs->ranks) return fail(ErrorCode::kRemote, kNotAll);
        return rows;
      },
      *theirs);
  if (!engine) return tl::unexpected(engine.error());
  const auto verdict = line.hear(1, steady_clock::now() + voted());
  if (verdict && (*verdict)[0] == std::byte{1}) return Attempt{*theirs, std::move(*engine)};
  (*engine)->abort("it was not taken in");
  return fail(ErrorCode::kRemote, verdict ? kNotAll : verdict.error().message);
}

}  // namespace

Result<std::unique_ptr<Elastic>> Elastic::join(transport::Transport& transport, ElasticOptions options,
                                               const std::vector<std::string>& addresses, Duration wait) {
  if (options.engine.helpers > 0 || addresses.empty()) {
    return fail(ErrorCode::kInvalidArgument, "to join: allowed: no helpers, and one address of rank 0 or more");
  }
  const Deadline until = steady_clock::now() + wait;
  std::string last;
  do {
    const auto answered = rendezvous::knock_at_all(addresses, kMostInvitation, until);
    if (!answered) {
      if (last.empty() || answered.error().code != ErrorCode::kRemote) return tl::unexpected(answered.error());
      break;
    }
    auto attempt = follow(transport, answered->line, options.engine, answered->message);
    if (!attempt) {
      // What this process cannot do it cannot do at the next try.
      if (attempt.error().code != ErrorCode::kRemote && attempt.error().code != ErrorCode::kInvalidUsage) {
        return tl::unexpected(attempt.error());
      }
      last = attempt.error().message;
      std::this_thread::sleep_for(
          std::min<Duration>(kPause, std::max<Duration>(until - steady_clock::now(), Duration{})));
      continue;
    }
    const Place place{attempt->options.epoch, attempt->options.rank, attempt->options.ranks};
    options.engine = attempt->options;
    return std::unique_ptr<Elastic>(new Elastic(transport, std::move(options), std::move(attempt->engine), place));
  } while (steady_clock::now() < until);
  return fail(ErrorCode::kRemote, fmt::format("nobody let it in at {} within {:.3g} s: {}", fmt::join(addresses, ", "),
                                              std::chrono::duration<double>(wait).count(), last));
}

}  // namespace clustar::paraexpress
