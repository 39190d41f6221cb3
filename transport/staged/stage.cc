#include "transport/staged/stage.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

namespace clustar::transport::staged {
namespace {

// Nothing is read or written there.
constexpr std::size_t kNothingBytes = 64;

}  // namespace

// After an abort NCCL deregisters, then closes. A copy that is under way then must not touch memory that its owner has
// taken back. Without open messages there is none: then nothing is locked, and registrations come and go beside data.
class Stage::DeviceMr final : public Mr {
 public:
  DeviceMr(const gdr::MemoryRef& memory, std::shared_ptr<Anchor> anchor) : Mr(memory), anchor_(std::move(anchor)) {
    const std::lock_guard lock(anchor_->lengths_mutex);
    anchor_->lengths.push_back(memory.length);
  }
  ~DeviceMr() override {
    {
      const std::lock_guard lock(anchor_->lengths_mutex);
      anchor_->lengths.erase(std::find(anchor_->lengths.begin(), anchor_->lengths.end(), memory().length));
    }
    if (users_.load(std::memory_order_acquire) == 0) return;
    const std::lock_guard lock(anchor_->mutex);
    if (anchor_->stage != nullptr) anchor_->stage->on_deregister(*this);
  }
  // Of parts of open messages.
  void add_user() const { users_.fetch_add(1, std::memory_order_relaxed); }
  void remove_user() const { users_.fetch_sub(1, std::memory_order_release); }

 private:
  std::shared_ptr<Anchor> anchor_;
  mutable std::atomic<std::uint32_t> users_{0};
};

Stage::Stage(Context& context, Direction direction, std::uint32_t max_messages, Register with_inner)
    : context_(context),
      direction_(direction),
      with_inner_(std::move(with_inner)),
      anchor_(std::make_shared<Anchor>()),
      core_({direction, context.options.slice_bytes, max_messages, context.options.max_copies}),
      parts_(max_messages) {
  anchor_->stage = this;
}

Result<std::unique_ptr<Mr>> Stage::reg_mr(const gdr::MemoryRef& memory) {
  // Copies go by the address; the descriptor only has to be one.
  if (memory.kind == gdr::MemoryKind::kDmaBuf && fcntl(memory.fd, F_GETFD) < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}, staged: descriptor {} of a dma-buf is not open", context_.name, memory.fd));
  }
  auto mr = std::make_unique<DeviceMr>(memory, anchor_);
  if (!active() || broken_.load(std::memory_order_acquire) ||
      wanted_slices() > ready_slices_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex());
    if (error_) return tl::unexpected(*error_);
    if (!active()) {
      if (const auto made = activate(memory); !made) return tl::unexpected(made.error());
      active_.store(true, std::memory_order_release);
    }
    // At least twice what there was: old ones are kept, and together must not become many times the largest.
    const std::uint32_t wanted = wanted_slices();
    const std::uint32_t ready = ready_slices_.load(std::memory_order_relaxed);
    if (wanted > ready) {
      const std::uint32_t more = std::max(wanted, std::min(2 * ready, most_slices()));
      if (const auto made = make_arena(more); !made) return tl::unexpected(made.error());
    }
  }
  return mr;
}

Result<void> Stage::activate(const gdr::MemoryRef& memory) {
  nothing_mr_.reset();  // of an attempt that failed, in this order
  nothing_.reset();
  auto copy = context_.options.make_copy(memory);
  if (!copy) return tl::unexpected(copy.error());
  copy_ = std::move(*copy);
  auto nothing = copy_->host_buffer(kNothingBytes);
  if (!nothing) return tl::unexpected(nothing.error());
  auto mr = with_inner_(gdr::MemoryRef::host((*nothing)->bytes().data(), kNothingBytes));
  if (!mr) return tl::unexpected(mr.error());
  nothing_mr_ = std::move(*mr);
  nothing_ = std::move(*nothing);
  const std::uint32_t slices = std::max(context_.options.slices, wanted_slices());
  if (const auto made = make_arena(slices); !made) return made;
  core_.arena_is(slices);
  return {};
}

Result<void> Stage::make_arena(std::uint32_t slices) {
  auto memory = copy_->host_buffer(slices * context_.options.slice_bytes);
  if (!memory) return tl::unexpected(memory.error());
  const std::span<std::byte> bytes = (*memory)->bytes();
  auto mr = with_inner_(gdr::MemoryRef::host(bytes.data(), bytes.size()));
  if (!mr) return tl::unexpected(mr.error());
  if (slices > context_.options.slices) context_.counters.larger_arenas.fetch_add(1, std::memory_order_relaxed);
  arenas_.push_back({slices, std::move(*memory), std::move(*mr)});
  ready_slices_.store(slices, std::memory_order_release);
  return {};
}

// Parts of one request do not overlap, so they need no more than the longest registrations, one for each part, and a
// slice that is not full for each part but one.
std::uint32_t Stage::wanted_slices() const {
  const std::uint32_t parts = parts_of_a_request();
  std::uint64_t slices = parts - 1;
  {
    const std::lock_guard lock(anchor_->lengths_mutex);
    std::vector<std::size_t>& lengths = anchor_->lengths;
    const std::size_t count = std::min<std::size_t>(parts, lengths.size());
    const auto end = lengths.begin() + static_cast<std::ptrdiff_t>(count);
    std::partial_sort(lengths.begin(), end, lengths.end(), std::greater<>());
    slices += core_.slices_for(std::span(lengths).first(count));
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(slices, most_slices()));
}

// For Options::most_bytes, however they are divided among the parts.
std::uint32_t Stage::most_slices() const {
  return static_cast<std::uint32_t>(core_.slices_for(std::span(&context_.options.most_bytes, 1))) +
         parts_of_a_request() - 1;
}

Result<void> Stage::check(std::span<const Part> parts) const {
  std::uint64_t slices = 0;
  std::size_t bytes = 0;
  for (const Part& part : parts) {
    if (part.mr == nullptr) continue;
    const gdr::MemoryRef& memory = part.mr->memory();
    const auto offset = static_cast<std::size_t>(part.device - memory.address);
    if (part.staged > memory.length || offset > memory.length - part.staged) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}, staged: {} bytes at offset {} of GPU memory; {} bytes of it are registered",
                              context_.name, part.staged, offset, memory.length));
    }
    bytes += part.staged;
    slices += core_.slices_for(std::span(&part.staged, 1));
    if (bytes > context_.options.most_bytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}, staged: {} bytes of GPU memory in one request; at most {} bytes are allowed",
                              context_.name, bytes, context_.options.most_bytes));
    }
  }
  if (slices > ready_slices_.load(std::memory_order_relaxed)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}, staged: {} bytes of GPU memory in one request are more than what is registered; parts "
                            "that do not overlap are allowed",
                            context_.name, bytes));
  }
  return {};
}

std::optional<Stage::Id> Stage::open(std::span<const Part> parts) {
  std::array<std::size_t, kMaxRecvParts> staged{};
  for (std::size_t i = 0; i < parts.size(); ++i) staged[i] = parts[i].staged;
  const auto id = core_.open(std::span(staged).first(parts.size()));
  if (!id) return id;
  std::copy(parts.begin(), parts.end(), parts_[*id].begin());
  for (const Part& part : parts) {
    if (part.mr != nullptr) static_cast<const DeviceMr*>(part.mr)->add_user();
  }
  return id;
}

void Stage::advance() {
  if (!active() || core_.failed()) return;
  const std::size_t under_way = flights_.size();
  end_copies();
  if (under_way > 0 && !warned_) warn_of_stuck_copies(flights_.size() < under_way);
  if (arena_ + 1 < arenas_.size() && core_.held_slices() == 0) {
    arena_ = arenas_.size() - 1;
    core_.arena_is(arenas_[arena_].slices);
  }
  begin_copies();
}

void Stage::end_copies() {
  for (std::size_t i = 0; i < flights_.size();) {
    const auto ended = copy_->done(flights_[i].ticket);
    // By the rule of DeviceCopy the first error says nothing of this copy, and a later one that nothing is written.
    const bool unknown = !ended && !driver_failed_;
    if (unknown) {
      driver_failed_ = true;
      fail_with(ended.error());
    }
    if (unknown || (ended && !*ended)) {
      ++i;
      continue;
    }
    const gdr::Staging::Copy copy = flights_[i].copy;
    flights_[i] = flights_.back();
    flights_.pop_back();
    core_.copied(copy);
  }
}

// Nobody asks for the copies under way any more. No message may seem complete by that.
void Stage::give_up(const Error& error) {
  fail_with(error);
  for (const Flight& flight : flights_) core_.copied(flight.copy);
  flights_.clear();
}

void Stage::warn_of_stuck_copies(bool one_ended) {
  const TimePoint now = context_.clock.now();
  if (one_ended || last_ended_ == TimePoint{}) last_ended_ = now;
  if (now - last_ended_ < kStuckAfter) return;
  warned_ = true;
  context_.log.warn(fmt::format(
      "{}, staged: {} copies between GPU and host memory by {} have not ended for {} s: a kernel that waits for them "
      "may stand before them in the GPU's queue, or another thread of this process may wait for the GPU in "
      "cuMemFreeHost (cudaFreeHost); unset CUDA_DEVICE_MAX_CONNECTIONS, do without MPS, free pinned memory only when "
      "no "
      "collective runs, or leave CLUSTAR_GDR=staged out",
      context_.name, flights_.size(), copy_->name(),
      std::chrono::duration_cast<std::chrono::seconds>(kStuckAfter).count()));
}

void Stage::begin_copies() {
  if (flights_.empty()) last_ended_ = {};
  while (const auto copy = core_.next_copy()) {
    std::byte* const host = arenas_[arena_].memory->bytes().data() + copy->arena;
    std::byte* const device = parts_[copy->message][copy->part].device + copy->offset;
    const auto ticket = direction_ == Direction::kSend ? copy_->to_host(host, device, copy->bytes)
                                                       : copy_->to_device(device, host, copy->bytes);
    if (!ticket) {
      driver_failed_ = driver_failed_ || ticket.error().code != ErrorCode::kInvalidArgument;
      return fail_with(ticket.error());
    }
    if (!*ticket) return;
    flights_.push_back({**ticket, *copy});
    core_.begun(*copy);
  }
}

const Mr& Stage::host_mr(Id message, std::uint32_t part) const {
  return parts_[message][part].staged > 0 ? *arenas_[arena_].mr : *nothing_mr_;
}

std::size_t Stage::host_offset(Id message, std::uint32_t part) const {
  return parts_[message][part].staged > 0 ? core_.place(message, part) : 0;
}

void Stage::release(Id message) {
  for (const Part& part : parts_[message]) {
    if (part.mr != nullptr) static_cast<const DeviceMr*>(part.mr)->remove_user();
  }
  parts_[message] = {};
  core_.release(message);
}

void Stage::inner_failed(std::optional<Id> message, const Error& error) {
  if (message) core_.network_failed(*message);
  core_.close();
  if (error_) return;
  error_ = error;
  broken_.store(true, std::memory_order_release);
}

void Stage::fail_with(const Error& error) {
  core_.fail();
  if (error_) return;
  error_ = Error{error.code, fmt::format("{}, staged: {}", context_.name, error.message)};
  broken_.store(true, std::memory_order_release);
  context_.log.warn(error_->message);
}

bool Stage::uses(Id message, const Mr& mr) const {
  if (core_.complete(message) || core_.broken(message)) return false;
  return std::any_of(parts_[message].begin(), parts_[message].end(), [&](const Part& part) { return part.mr == &mr; });
}

void Stage::on_deregister(const Mr& mr) {
  bool used = false;
  for (Id id = 0; id < parts_.size(); ++id) used = used || uses(id, mr);
  if (used) {
    fail_with({ErrorCode::kInvalidUsage,
               "GPU memory was deregistered while requests used it; deregister it after they are done"});
  }
  end_copies(&mr);
  for (Parts& parts : parts_) {
    for (Part& part : parts) part.mr = part.mr == &mr ? nullptr : part.mr;
  }
}

std::string Stage::stuck() const {
  return fmt::format("{} copies of {} have not ended within a second; the GPU may be stuck", flights_.size(),
                     copy_->name());
}

void Stage::end_copies(const Mr* mr) {
  const auto concerned = [&](const Flight& flight) {
    return mr == nullptr || parts_[flight.copy.message][flight.copy.part].mr == mr;
  };
  const TimePoint limit = context_.clock.now() + kPatience;
  while (std::any_of(flights_.begin(), flights_.end(), concerned)) {
    end_copies();
    if (context_.clock.now() > limit) {
      if (error_) context_.log.warn(fmt::format("{}, staged: {}", context_.name, stuck()));
      give_up({ErrorCode::kSystem, stuck()});
      return;
    }
    std::this_thread::yield();
  }
}

void Stage::stop() {
  const std::lock_guard lock(mutex());
  anchor_->stage = nullptr;
  core_.fail();
  end_copies(nullptr);
}

}  // namespace clustar::transport::staged
