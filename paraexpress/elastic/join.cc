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

// Of one that is invited. Error: not this time.
Result<Attempt> follow(transport::Transport& transport, const rendezvous::DoorLine& line, const EngineOptions& options,
                       std::span<const std::byte> invitation) {
  const auto theirs = invited(invitation, options);
  if (!theirs) return fail(ErrorCode::kRemote, "its invitation makes no sense; do all ranks have the same version?");
  // Rank 0 waits for each newcomer, and then the members build for a while.
  const auto soon = [&](int times) -> Deadline { return steady_clock::now() + times * theirs->setup; };
  auto engine = Engine::create(
      transport,
      [&](std::span<const std::byte> mine) -> Result<std::vector<std::byte>> {
        if (const auto ok = line.say(mine, soon(1)); !ok) return tl::unexpected(ok.error());
        return line.hear(mine.size() * theirs->ranks, soon(3));
      },
      *theirs);
  if (!engine) return tl::unexpected(engine.error());
  const auto verdict = line.hear(1, soon(6));
  if (verdict && (*verdict)[0] == std::byte{1}) return Attempt{*theirs, std::move(*engine)};
  (*engine)->abort("it was not taken in");
  return fail(ErrorCode::kRemote,
              verdict ? "not all ranks and newcomers could reach each other" : verdict.error().message);
}

}  // namespace

Result<std::unique_ptr<Elastic>> Elastic::join(transport::Transport& transport, ElasticOptions options,
                                               const std::vector<std::string>& addresses, Duration wait) {
  if (options.engine.helpers > 0 || addresses.empty()) {
    return fail(ErrorCode::kInvalidArgument, "to join: allowed: no helpers, and one address of rank 0 or more");
  }
  const Deadline until = steady_clock::now() + wait;
  std::string last = "rank 0 lets newcomers in when all ranks call resize()";
  do {
    const auto line = rendezvous::knock(addresses, until);
    if (!line) return tl::unexpected(line.error());
    const auto invitation = line->hear(kMostInvitation, until);
    if (!invitation) {
      // Rank 0 met others there, or has left: the next one may be on its way.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    auto attempt = follow(transport, *line, options.engine, *invitation);
    if (!attempt) {
      last = attempt.error().message;
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
