#include "nccl_plugin/collnet/control_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace clustar::nccl_plugin {
namespace {

using std::chrono::steady_clock;

constexpr int kMeetingTag = 0, kStartedTag = 1;
constexpr std::array kKinds = {"all-reduce", "all-gather", "reduce-scatter"};

void rest() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

Error of_rank(std::uint32_t rank, Error error) {
  error.message = fmt::format("rank {}: {}", rank, error.message);
  return error;
}

}  // namespace

std::string to_string(const Started& started) {
  if (started.kind == Started::kLeaves) return fmt::format("no operation {}", started.number);
  return fmt::format("operation {}, {} of {} bytes (datatype {}, operator {}{})", started.number,
                     started.kind < kKinds.size() ? kKinds[started.kind] : "?", started.bytes, started.type,
                     started.reduction,
                     started.kind == Started::kAllReduce
                         ? ""
                         : fmt::format(", from {} of {} a rank", started.window_offset, started.bytes_per_rank));
}

// FNV-1a, by fields.
std::uint64_t fingerprint_of(const Started& started) {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::uint64_t field :
       {std::uint64_t{started.kind}, std::uint64_t{started.type}, std::uint64_t{started.reduction}, started.bytes,
        started.window_offset, started.bytes_per_rank}) {
    hash = (hash ^ field) * 1099511628211u;
  }
  return hash;
}

Result<std::unique_ptr<ControlRing>> ControlRing::connect(transport::Transport& transport,
                                                          transport::Listener& listener,
                                                          std::span<const transport::Handle> handles,
                                                          const Options& options) {
  std::unique_ptr<ControlRing> ring(new ControlRing(options));
  const std::uint32_t next = (options.rank + 1) % options.ranks;
  const auto connecting = transport.connect(options.device, handles[next], options.channel);
  if (!connecting) return tl::unexpected(of_rank(next, connecting.error()));
  while (ring->to_next_ == nullptr || ring->from_before_ == nullptr) {
    if (ring->to_next_ == nullptr) {
      auto channel = (*connecting)->poll();
      if (!channel) return tl::unexpected(of_rank(next, channel.error()));
      ring->to_next_ = std::move(*channel);
    }
    if (ring->from_before_ == nullptr) {
      auto channel = listener.poll_accept();
      if (!channel) return tl::unexpected(of_rank(ring->before(), channel.error()));
      ring->from_before_ = std::move(*channel);
    }
    if (steady_clock::now() > options.until) {
      return fail(ErrorCode::kRemote,
                  fmt::format("rank {} did not connect in time", ring->to_next_ == nullptr ? next : ring->before()));
    }
    if (ring->to_next_ == nullptr || ring->from_before_ == nullptr) rest();
  }
  return ring;
}

ControlRing::~ControlRing() {
  // Memory that a channel may read or write goes after its registration, and that after what is under way.
  sent_mr_.reset();
  heard_mr_.reset();
  to_next_.reset();
  from_before_.reset();
}

Result<void> ControlRing::exchange(const transport::Mr& to_send, const transport::Mr& to_receive, std::size_t send_at,
                                   std::size_t receive_at, std::size_t bytes) {
  const transport::RecvPart part{&to_receive, receive_at, bytes, kMeetingTag};
  transport::Request *sending = nullptr, *receiving = nullptr;
  bool sent = false, received = false;
  const std::uint32_t next = (options_.rank + 1) % options_.ranks;
  while (!sent || !received) {
    if (receiving == nullptr && !received) {
      const auto posted = from_before_->recv({&part, 1});
      if (!posted) return tl::unexpected(of_rank(before(), posted.error()));
      receiving = *posted;
    }
    if (sending == nullptr && !sent) {
      const auto posted = to_next_->send(to_send, send_at, bytes, kMeetingTag, {});
      if (!posted) return tl::unexpected(of_rank(next, posted.error()));
      sending = *posted;
    }
    if (sending != nullptr) {
      const auto progress = sending->test();
      if (!progress) return tl::unexpected(of_rank(next, progress.error()));
      if (progress->done) sent = true, sending = nullptr;
    }
    if (receiving != nullptr) {
      const auto progress = receiving->test();
      if (!progress) return tl::unexpected(of_rank(before(), progress.error()));
      if (progress->done && progress->sizes[0] != bytes) {
        return fail(ErrorCode::kRemote,
                    fmt::format("rank {} said {} bytes where {} were expected", before(), progress->sizes[0], bytes));
      }
      if (progress->done) received = true, receiving = nullptr;
    }
    if (steady_clock::now() > options_.until) {
      return fail(ErrorCode::kRemote,
                  fmt::format("rank {} did not {} in time", received ? next : before(), received ? "listen" : "speak"));
    }
    if (!sent || !received) rest();
  }
  return {};
}

Result<std::vector<std::byte>> ControlRing::all_gather(std::span<const std::byte> mine) {
  const std::size_t row = mine.size();
  std::vector<std::byte> rows(row * options_.ranks);
  std::memcpy(rows.data() + row * options_.rank, mine.data(), row);
  const auto memory = gdr::MemoryRef::host(rows.data(), rows.size());
  const auto to_send = to_next_->reg_mr(memory);
  if (!to_send) return tl::unexpected(to_send.error());
  const auto to_receive = from_before_->reg_mr(memory);
  if (!to_receive) return tl::unexpected(to_receive.error());
  for (std::uint32_t step = 0; step + 1 < options_.ranks; ++step) {
    const std::uint32_t out = (options_.rank + options_.ranks - step) % options_.ranks;
    const std::uint32_t in = (options_.rank + options_.ranks - step - 1) % options_.ranks;
    const auto moved = exchange(**to_send, **to_receive, row * out, row * in, row);
    // What is still under way may write to the rows: the channels go first.
    if (!moved) {
      to_next_.reset();
      from_before_.reset();
      return tl::unexpected(moved.error());
    }
  }
  return rows;
}

Result<void> ControlRing::open() {
  auto to_send = to_next_->reg_mr(gdr::MemoryRef::host(sent_.data(), sizeof sent_));
  if (!to_send) return tl::unexpected(to_send.error());
  auto to_receive = from_before_->reg_mr(gdr::MemoryRef::host(heard_.data(), sizeof heard_));
  if (!to_receive) return tl::unexpected(to_receive.error());
  sent_mr_ = std::move(*to_send);
  heard_mr_ = std::move(*to_receive);
  silent_ = false;
  for (std::size_t place = 0; place < kPlaces; ++place) post(place);
  return {};
}

void ControlRing::post(std::size_t place) {
  const std::size_t at = static_cast<std::size_t>(reinterpret_cast<std::byte*>(&heard_[place].message) -
                                                  reinterpret_cast<std::byte*>(heard_.data()));
  const transport::RecvPart part{heard_mr_.get(), at, sizeof(Started), kStartedTag};
  const auto posted = from_before_->recv({&part, 1});
  if (!posted || *posted == nullptr) {
    silent_ = true;
    return;
  }
  heard_[place].request = *posted;
}

void ControlRing::tell(const Started& started) {
  if (silent_) return;
  to_send_.push_back(started);
  own_.push_back(started);
}

bool ControlRing::send_what_waits() {
  for (Place& place : sent_) {
    if (place.request != nullptr) {
      const auto progress = place.request->test();
      if (!progress) return false;
      if (!progress->done) continue;
      place.request = nullptr;
    }
    if (to_send_.empty()) continue;
    place.message = to_send_.front();
    const std::size_t at = static_cast<std::size_t>(reinterpret_cast<std::byte*>(&place.message) -
                                                    reinterpret_cast<std::byte*>(sent_.data()));
    const auto posted = to_next_->send(*sent_mr_, at, sizeof(Started), kStartedTag, {});
    if (!posted) return false;
    place.request = *posted;
    if (*posted != nullptr) to_send_.pop_front();
  }
  return true;
}

bool ControlRing::hear() {
  for (std::size_t i = 0; i < kPlaces; ++i) {
    Place& place = heard_[next_heard_];
    const auto progress = place.request->test();
    if (!progress) return false;
    if (!progress->done) return true;
    if (progress->sizes[0] != sizeof(Started)) return false;
    theirs_.push_back(place.message);
    post(next_heard_);
    if (silent_) return false;
    next_heard_ = (next_heard_ + 1) % kPlaces;
  }
  return true;
}

Result<void> ControlRing::compare() {
  while (!own_.empty() && !theirs_.empty()) {
    const Started own = own_.front(), theirs = theirs_.front();
    own_.pop_front();
    theirs_.pop_front();
    if (own == theirs) continue;
    silent_ = true;
    if (theirs.kind == Started::kLeaves) {
      return fail(ErrorCode::kRemote, fmt::format("rank {} left before {}", before(), to_string(own)));
    }
    return fail(
        ErrorCode::kInvalidUsage,
        fmt::format("rank {} started {}, rank {} {}; all ranks must start the same operations in the same order",
                    before(), to_string(theirs), options_.rank, to_string(own)));
  }
  return {};
}

Result<void> ControlRing::poll() {
  if (silent_) return {};
  if (!send_what_waits() || !hear()) silent_ = true;
  return compare();
}

void ControlRing::flush(std::chrono::milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  const auto under_way = [this] {
    return !to_send_.empty() || std::ranges::any_of(sent_, [](const Place& place) { return place.request != nullptr; });
  };
  while (!silent_ && under_way() && steady_clock::now() < until) {
    if (!send_what_waits()) silent_ = true;
    rest();
  }
}

}  // namespace clustar::nccl_plugin
