#include "paraexpress/tolerant/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "paraexpress/engine/poll_pause.h"

namespace clustar::paraexpress::tolerant {
namespace {

using std::chrono::steady_clock;

constexpr Duration kPart = std::chrono::seconds(1), kPartFailed = std::chrono::milliseconds(500);
// What others wait for is theirs by then, or they stand still.
constexpr Duration kDrain = std::chrono::seconds(60);
// What a rank sent before it left is here by then.
constexpr auto kLastWords = std::chrono::seconds(1);
constexpr Duration kIdlePause = std::chrono::microseconds(500);
// Looks for failures, while there is something to do and while there is not.
constexpr std::uint64_t kLookEvery = 64, kLookIdlyEvery = 8;

TimePoint now() { return TimePoint(Duration(steady_clock::now().time_since_epoch())); }

std::optional<Blame> blame_of(const std::optional<Fault>& fault) {
  if (!fault) return std::nullopt;
  return blame(fault->guilty, {fault->code, fault->what});
}

}  // namespace

class TheGroup::Started final : public Round {
 public:
  explicit Started(std::shared_ptr<Pending<Outcome>> pending) : pending_(std::move(pending)) {}
  bool done() const override { return pending_->done(); }
  Result<Outcome> wait() override { return pending_->wait(); }

 private:
  std::shared_ptr<Pending<Outcome>> pending_;
};

Result<void> TheGroup::set_up(transport::Transport& transport, const AllGather& all_gather) {
  MeshOptions mesh;
  mesh.self = options_.rank;
  mesh.ranks = options_.ranks;
  mesh.device = options_.device;
  mesh.waits.each = options_.stall;
  mesh.channel = options_.channel;
  mesh.channel.rank = static_cast<int>(options_.rank);
  mesh.channel.max_tolerance_ppm = options_.tolerance.tolerance_ppm;
  auto connected = Mesh::connect(transport, all_gather, mesh);
  if (!connected) return tl::unexpected(connected.error());
  mesh_ = std::move(*connected);
  farewells_ = std::make_unique<Farewells>(*mesh_, options_.rank, options_.ranks);
  if (auto ok = farewells_->open(); !ok) return ok;
  auto carrier = Carrier::open(*mesh_, {options_.rank, options_.ranks, options_.buckets, options_.channel.comm_id,
                                        options_.tolerance.tolerance_ppm, options_.most_bytes});
  if (!carrier) return tl::unexpected(carrier.error());
  carrier_ = std::move(*carrier);
  party_ = std::make_unique<Party>(terms_, *carrier_);
  moved_at_ = steady_clock::now();
  thread_.start([this] { serve(); }, [this] { abort("its library was unloaded"); });
  return {};
}

Result<void> TheGroup::usable(std::uint32_t bucket) const {
  if (bucket >= options_.buckets) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("bucket {}; allowed: 0 to {}", bucket, options_.buckets - 1));
  }
  if (failed_) return tl::unexpected(failed_->error);
  if (closing_ || party_ == nullptr) return fail(ErrorCode::kInvalidUsage, "the group is closed");
  return {};
}

std::unique_ptr<Round> TheGroup::all_reduce(std::uint32_t bucket, void* elements, std::size_t count, DataType type,
                                            bool gives) {
  auto pending = std::make_shared<Pending<Outcome>>();
  auto round = std::make_unique<Started>(pending);
  const std::lock_guard lock(mutex_);
  auto ok = usable(bucket);
  if (ok && type != DataType::kFloat32 && type != DataType::kFloat64) {
    ok = fail(ErrorCode::kInvalidArgument, fmt::format("elements of {}; allowed: float32, float64", name_of(type)));
  }
  if (ok && (elements == nullptr || count == 0 || count > kMostElements)) {
    ok = fail(ErrorCode::kInvalidArgument, fmt::format("{} elements; allowed: 1 to 2^40, in memory", count));
  }
  if (ok && count * element_bytes(type) > options_.most_bytes) {
    ok = fail(ErrorCode::kInvalidArgument,
              fmt::format("{} elements of {}; allowed: {} bytes", count, name_of(type), options_.most_bytes));
  }
  if (!ok) {
    pending->end(tl::unexpected(ok.error()));
    return round;
  }
  open_.push_back({bucket, std::move(pending), static_cast<std::byte*>(elements), count, type, gives});
  moved_at_ = steady_clock::now();
  wake_.notify_all();
  return round;
}

bool TheGroup::should_compute() {
  const std::lock_guard lock(mutex_);
  if (party_ == nullptr || failed_) return true;
  failed_ = begin_rounds();
  return party_->should_compute();
}

// In the thread, as a rule: so what is given is added up beside what the caller computes. What this rank cannot do
// fails all, as they would wait for it.
std::optional<Blame> TheGroup::begin_rounds() {
  for (Open& one : open_) {
    if (std::exchange(one.begun, true)) continue;
    try {
      const auto fault = party_->begin(one.bucket, one.elements, one.count, one.type, one.gives, now());
      if (fault) return blame_of(fault);
    } catch (const std::bad_alloc&) {
      return blame(options_.rank,
                   {ErrorCode::kSystem, fmt::format("no memory for what is kept of bucket {}", one.bucket)});
    }
  }
  return std::nullopt;
}

Result<Residual> TheGroup::residual(std::uint32_t bucket) {
  const std::lock_guard lock(mutex_);
  if (const auto ok = usable(bucket); !ok) return tl::unexpected(ok.error());
  if (std::ranges::any_of(open_, [bucket](const Open& one) { return one.bucket == bucket; })) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("a round of bucket {} is open: wait for it", bucket));
  }
  return party_->residual(bucket);
}

Result<void> TheGroup::restore(std::uint32_t bucket, Residual residual) {
  const std::lock_guard lock(mutex_);
  if (auto ok = usable(bucket); !ok) return ok;
  if (auto wrong = party_->restore(bucket, std::move(residual))) {
    return fail(ErrorCode::kInvalidUsage, std::move(*wrong));
  }
  return {};
}

EngineTraffic TheGroup::traffic() const {
  const std::lock_guard lock(mutex_);
  return carrier_ != nullptr ? carrier_->traffic() : traffic_;
}

void TheGroup::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (closing_ || failed_) return;
  failed_ = blame(options_.rank, {ErrorCode::kInvalidUsage, why});
  wake_.notify_all();
}

std::optional<Blame> TheGroup::heard(Member from, std::span<const std::byte> note) {
  const auto parsed = parse_note(note, terms_);
  if (!parsed) {
    return blame(from, {ErrorCode::kRemote, "it sent what is no note; do all ranks have the same version?"});
  }
  return blame_of(party_->heard(from, *parsed, now()));
}

std::optional<Blame> TheGroup::came(Member from, const Ticket& ticket, std::span<const ElementRange> missing) {
  return blame_of(party_->came(from, ticket, missing, now()));
}

void TheGroup::sent(Member to, const Ticket& ticket, std::span<const ElementRange> missing) {
  party_->sent(to, ticket, missing);
}

bool TheGroup::settle() {
  const auto ended = std::erase_if(open_, [this](const Open& one) {
    if (!one.begun) return false;
    auto outcome = party_->settle(one.bucket);
    if (!outcome) return false;
    outcome->took = one.pending->age();
    one.pending->end(*outcome);
    return true;
  });
  return ended > 0;
}

std::optional<Blame> TheGroup::step() {
  bool moved = false;
  if (auto found = begin_rounds()) return found;
  auto found =
      carrier_->advance(*this,
                        {[this](Member peer) { return farewells_->has_left(peer); },
                         [this](Member peer, const Error& error) { return who_failed(*farewells_, peer, error); }},
                        moved);
  if (!found) found = blame_of(party_->advance(now()));
  if (found) return found;
  moved = settle() || moved;
  return look(moved);
}

std::optional<Blame> TheGroup::look(bool moved) {
  const auto at = steady_clock::now();
  if (moved) moved_at_ = at;
  if (++looks_ % (moved ? kLookEvery : kLookIdlyEvery) == 0) {
    if (auto found = farewells_->look()) return found;
  }
  return open_.empty() ? std::nullopt : look_for_stalls(at - moved_at_);
}

std::optional<Blame> TheGroup::look_for_stalls(steady_clock::duration idle) const {
  for (Member peer = 0; idle > kLastWords && peer < options_.ranks; ++peer) {
    if (!farewells_->has_left(peer)) continue;
    const auto lacks = [&](const Open& one) { return party_->lacks(one.bucket, peer); };
    if (std::ranges::any_of(open_, lacks)) {
      return blame(peer, {ErrorCode::kRemote, "it has left, where others have more rounds to do"});
    }
  }
  if (idle < options_.stall) return std::nullopt;
  return Blame{
      kNobody,
      {ErrorCode::kRemote,
       fmt::format("nothing moved for {:.3g} s in a round of bucket {}, which {} of {} ranks must give to",
                   std::chrono::duration<double>(idle).count(), open_.front().bucket, terms_.quorum, terms_.ranks)}};
}

void TheGroup::rest(std::unique_lock<std::mutex>& lock) {
  const auto at = steady_clock::now();
  auto pause = Duration(poll_pause(at - moved_at_));
  if (pause.count() == 0) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    return;
  }
  // Nobody here waits: what others sent may lie for a moment, while this rank computes.
  if (open_.empty()) pause = kIdlePause;
  if (const auto next = party_->next()) pause = std::clamp(*next - now(), Duration(0), pause);
  wake_.wait_for(lock, pause);
}

// The thread: it alone uses the channels.
void TheGroup::serve() {
  std::unique_lock lock(mutex_);
  std::optional<Blame> found;
  std::optional<Instant> closes_by;
  const auto has_left = [this](Member peer) { return farewells_->has_left(peer); };
  for (;;) {
    if (!failed_) found = step();
    if (found && !failed_) failed_ = found;
    if (failed_) break;
    if (closing_ && !closes_by) closes_by = steady_clock::now() + std::min(options_.stall, kDrain);
    if (closes_by && (!carrier_->is_sending(has_left) || steady_clock::now() > *closes_by)) break;
    rest(lock);
  }
  const std::optional<Blame> why = failed_;
  lock.unlock();
  const auto last_word = farewells_->last_word(why, why ? kPartFailed : kPart);
  lock.lock();
  end(last_word);
}

// Nothing is sent or received any more; then what callers gave is theirs again.
void TheGroup::end(const std::optional<Blame>& why) {
  if (why) failed_ = why;
  traffic_ = carrier_->traffic();
  mesh_->close();
  carrier_->release();
  party_.reset();
  carrier_.reset();
  farewells_.reset();
  mesh_.reset();
  for (const Open& one : open_) one.pending->end(tl::unexpected(failed_->error));
  open_.clear();
}

void TheGroup::close() {
  const std::lock_guard one_at_a_time(closers_);
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (!open_.empty() && !failed_) {
      failed_ = blame(options_.rank, {ErrorCode::kInvalidUsage, "it closed before its rounds ended"});
    }
    wake_.notify_all();
  }
  thread_.end();
}

}  // namespace clustar::paraexpress::tolerant
