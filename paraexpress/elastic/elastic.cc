#include "paraexpress/elastic/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "paraexpress/elastic/invitation.h"
#include "transport/rendezvous/door.h"

namespace clustar::paraexpress {
namespace {

using std::chrono::steady_clock;

constexpr std::byte kIn{1}, kRefused{2};
// What rank 0 has gathered of the newcomers is whole.
constexpr std::uint64_t kWhole = 1;
constexpr std::chrono::milliseconds kAnswer(200);

// Waits for one of the engine's own operations.
Result<void> done(std::unique_ptr<Operation> operation) {
  const auto seconds = operation->wait();
  return seconds ? Result<void>() : tl::unexpected(seconds.error());
}

}  // namespace

Elastic::Elastic(transport::Transport& transport, ElasticOptions options, std::shared_ptr<Engine> engine,
                 const Place& place)
    : transport_(transport), options_(std::move(options)), engine_(std::move(engine)), place_(place) {}

Elastic::~Elastic() { close(); }

std::unique_ptr<Elastic> Elastic::around(transport::Transport& transport, std::unique_ptr<Engine> engine,
                                         ElasticOptions options) {
  const Place place{options.engine.epoch, options.engine.rank, options.engine.ranks};
  return std::unique_ptr<Elastic>(new Elastic(transport, std::move(options), std::move(engine), place));
}

std::shared_ptr<Engine> Elastic::engine() const {
  const std::lock_guard lock(mutex_);
  return engine_;
}

Place Elastic::place() const {
  const std::lock_guard lock(mutex_);
  return place_;
}

Result<void> Elastic::add_memory(void* memory, std::size_t bytes) {
  const std::lock_guard changing(changing_);
  if (const auto ok = engine()->add_memory(memory, bytes); !ok) return ok;
  const std::lock_guard lock(mutex_);
  memory_.emplace_back(memory, bytes);
  return {};
}

void Elastic::close() {
  const std::lock_guard changing(changing_);
  door_.reset();
  engine()->close();
}

Result<Resized> Elastic::resize() { return change(false); }

Result<void> Elastic::leave() {
  const auto left = change(true);
  return left ? Result<void>() : tl::unexpected(left.error());
}

Result<void> Elastic::may_change() const {
  const std::string& regions = options_.engine.regions;
  if (options_.engine.helpers > 0 || (!regions.empty() && regions != kProbeRegions)) {
    return fail(ErrorCode::kInvalidUsage,
                "ranks that join or leave, with helpers or a region map, which go by the ranks' numbers; allowed: no "
                "helpers, and regions empty or 'probe'");
  }
  if (options_.engine.stall >= kLeastStall) return {};
  return fail(ErrorCode::kInvalidUsage,
              fmt::format("ranks that join or leave, with a stall time of {:.3g} s; allowed: {:.3g} s or more",
                          std::chrono::duration<double>(options_.engine.stall).count(),
                          std::chrono::duration<double>(kLeastStall).count()));
}

Result<Resized> Elastic::change(bool leaves) {
  const std::lock_guard changing(changing_);
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return tl::unexpected(*ended_);
  }
  if (const auto ok = may_change(); !ok) return tl::unexpected(ok.error());
  auto resized = go(leaves);
  if (!resized || leaves) {
    door_.reset();
    const std::lock_guard lock(mutex_);
    ended_ = resized ? Error{ErrorCode::kInvalidUsage, "this rank has left"} : resized.error();
  }
  if (!resized) {
    // Where the engine has not failed itself the others learn of it by this.
    for (const auto& one : {std::exchange(next_, nullptr), engine()}) {
      if (one != nullptr) one->abort(resized.error().message);
    }
  } else if (leaves) {
    engine()->close();
  }
  return resized;
}

Result<Resized> Elastic::go(bool leaves) {
  if (const auto ok = engine()->settle(); !ok) return tl::unexpected(ok.error());
  const Place start = place();
  std::string shut;
  if (start.rank == 0 && !leaves) shut = open_door();
  // Who knocks here is sent to the next rank 0.
  if (leaves) door_.reset();
  const std::uint32_t waiting = door_ == nullptr ? 0 : std::min(door_->waiting(), at_once_);
  MembershipRound round(start, leaves, waiting, kMostRanks);
  while (round.step() != MembershipRound::Step::kDone && round.step() != MembershipRound::Step::kOut) {
    if (const auto ok = step(round); !ok) return tl::unexpected(ok.error());
  }
  Resized resized{round.place(), round.left(), round.newcomers(), 0, std::move(shut)};
  if (round.newcomers() > 0) at_once_ = round.refused() ? 1 : kMostNewcomers;
  if (round.refused()) std::swap(resized.joined, resized.refused);
  return resized;
}

Result<void> Elastic::step(MembershipRound& round) {
  using Step = MembershipRound::Step;
  switch (round.step()) {
    case Step::kAgree: return agree(round);
    case Step::kLend: return lend(round);
    case Step::kBuildWithout: return build_without(round);
    case Step::kBuildWith: return build_with(round);
    case Step::kVote: {
      if (const auto ok = agree(round); !ok) return ok;
      answer_newcomers(round);
      if (!round.refused()) {
        take(std::exchange(next_, nullptr), round.place());
        return {};
      }
      if (next_ != nullptr) next_->abort("not all ranks could be reached; nobody joined");
      next_.reset();
      const std::lock_guard lock(mutex_);
      place_ = round.place();
      return {};
    }
    case Step::kDone:
    case Step::kOut:
    case Step::kFailed: break;
  }
  return fail(ErrorCode::kInternal, "a round of changes that has ended goes on");
}

std::string Elastic::open_door() {
  if (door_ != nullptr || options_.door.empty()) return {};
  auto door = rendezvous::Door::at(options_.door);
  if (!door) return "nobody can join: where newcomers would knock: " + door.error().message;
  door_ = std::move(*door);
  return {};
}

Result<std::byte*> Elastic::room(std::size_t bytes) {
  if (room_bytes_ < bytes) {
    rooms_.push_back(std::make_unique<std::byte[]>(bytes));
    room_bytes_ = bytes;
    if (const auto ok = engine()->add_memory(rooms_.back().get(), bytes); !ok) return tl::unexpected(ok.error());
  }
  return rooms_.back().get();
}

Result<void> Elastic::agree(MembershipRound& round) {
  std::vector<std::uint64_t> numbers = round.numbers();
  const std::size_t bytes = numbers.size() * sizeof numbers[0];
  const auto at = room(bytes);
  if (!at) return tl::unexpected(at.error());
  std::memcpy(*at, numbers.data(), bytes);
  const auto ok = done(engine()->all_reduce(*at, numbers.size(), DataType::kUint64, Reduction::kMax));
  if (!ok) return ok;
  std::memcpy(numbers.data(), *at, bytes);
  round.agreed(numbers);
  return {};
}

Result<std::byte*> Elastic::gather(std::span<const std::byte> mine, std::size_t room_for_more) {
  const Place here = place();
  const auto at = room(here.ranks * mine.size() + room_for_more);
  if (!at) return at;
  std::memcpy(*at + here.rank * mine.size(), mine.data(), mine.size());
  if (const auto ok = done(engine()->all_gather(*at, mine.size())); !ok) return tl::unexpected(ok.error());
  return at;
}

Result<void> Elastic::lend(MembershipRound& round) {
  const std::vector<std::byte> nothing(exchange_bytes(static_cast<std::uint32_t>(round.survivors().size())));
  if (const auto ok = gather(nothing, 0); !ok) return tl::unexpected(ok.error());
  round.lent();
  return {};
}

Result<std::shared_ptr<Engine>> Elastic::make(const Place& at, const AllGather& all_gather, Waits::Instant until) {
  EngineOptions options = options_.engine;
  options.rank = at.rank;
  options.ranks = at.ranks;
  options.epoch = at.epoch;
  // Meanwhile the others wait in an operation of the engine before.
  options.setup = patience();
  options.setup_until = until;
  auto made = Engine::create(transport_, all_gather, options);
  if (!made) return tl::unexpected(made.error());
  const std::lock_guard lock(mutex_);
  for (const auto& [memory, bytes] : memory_) {
    const auto ok = (*made)->add_memory(memory, bytes);
    if (ok) continue;
    (*made)->abort(ok.error().message);
    return tl::unexpected(ok.error());
  }
  return std::shared_ptr<Engine>(std::move(*made));
}

void Elastic::take(std::shared_ptr<Engine> engine, const Place& at) {
  std::shared_ptr<Engine> before;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(engine_, std::move(engine));
    place_ = at;
  }
  before->close();
  rooms_.clear();
  room_bytes_ = 0;
}

Result<void> Elastic::build_without(MembershipRound& round) {
  const auto all_gather = [&](std::span<const std::byte> mine) -> Result<std::vector<std::byte>> {
    const auto rows = gather(mine, 0);
    if (!rows) return tl::unexpected(rows.error());
    std::vector<std::byte> theirs;
    for (const Member member : round.survivors()) {
      theirs.insert(theirs.end(), *rows + member * mine.size(), *rows + (member + 1) * mine.size());
    }
    return theirs;
  };
  const auto made = make(round.place(), all_gather, Waits::Instant::max());
  if (!made) {
    return fail(made.error().code,
                fmt::format("without ranks that left ({}), those that go on ({}, in new numbers): {}", round.left(),
                            round.place().ranks, made.error().message));
  }
  take(*made, round.place());
  round.built(true);
  return {};
}

Result<void> Elastic::build_with(MembershipRound& round) {
  // From here on each member takes part in all that the others wait for.
  const std::uint32_t all = round.place().ranks;
  if (const auto at = room(all * exchange_bytes(all) + sizeof kWhole); !at) return tl::unexpected(at.error());
  newcomers_until_ = steady_clock::now() + patience();
  if (place().rank == 0) {
    EngineOptions options = options_.engine;
    options.setup = patience();
    for (std::uint32_t i = 0; i < round.newcomers(); ++i) {
      const Place at = place_of_newcomer(round.place(), round.newcomers(), i);
      // One that is gone is seen when it should say its addresses.
      (void)door_->line(i).say(encode_invitation(at, options), newcomers_until_);
    }
  }
  bool gathered = false;
  const auto all_gather = [&](std::span<const std::byte> mine) {
    gathered = true;
    return gather_with(round, mine);
  };
  auto made = make(round.place(), all_gather, newcomers_until_);
  if (!gathered) {
    // The others wait for what this rank says, and see by zeros that it cannot go along.
    (void)gather_with(round, std::vector<std::byte>(exchange_bytes(round.place().ranks)));
  }
  if (made) next_ = std::move(*made);
  round.built(next_ != nullptr);
  return {};
}

Result<std::vector<std::byte>> Elastic::gather_with(const MembershipRound& round, std::span<const std::byte> mine) {
  const Place here = place();
  const std::size_t row = mine.size(), members = here.ranks * row, theirs = round.newcomers() * row;
  const auto rows = gather(mine, theirs + sizeof kWhole);
  if (!rows) return tl::unexpected(rows.error());
  if (here.rank == 0) {
    std::uint64_t whole = kWhole;
    for (std::uint32_t i = 0; i < round.newcomers(); ++i) {
      const auto said = door_->line(i).hear(row, newcomers_until_);
      if (!said || said->size() != row) {
        whole = 0;
        break;
      }
      std::memcpy(*rows + members + i * row, said->data(), row);
    }
    std::memcpy(*rows + members + theirs, &whole, sizeof whole);
  }
  if (const auto ok = done(engine()->broadcast(*rows + members, theirs + sizeof kWhole, 0)); !ok) {
    return tl::unexpected(ok.error());
  }
  std::uint64_t whole = 0;
  std::memcpy(&whole, *rows + members + theirs, sizeof whole);
  if (whole != kWhole) return fail(ErrorCode::kRemote, "a newcomer is gone");
  std::vector<std::byte> all(*rows, *rows + members + theirs);
  for (std::uint32_t i = 0; here.rank == 0 && i < round.newcomers(); ++i)
    (void)door_->line(i).say(all, newcomers_until_);
  return all;
}

void Elastic::answer_newcomers(const MembershipRound& round) {
  if (round.before().rank != 0) return;
  // One that listens has room for it at once.
  const auto soon = steady_clock::now() + kAnswer;
  const std::byte answer = round.refused() ? kRefused : kIn;
  for (std::uint32_t i = 0; i < round.newcomers(); ++i) (void)door_->line(i).say(std::span(&answer, 1), soon);
  door_->let_go(round.newcomers());
}

}  // namespace clustar::paraexpress
