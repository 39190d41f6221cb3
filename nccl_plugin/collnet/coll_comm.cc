#include "nccl_plugin/collnet/coll_comm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>

#include "nccl_plugin/collnet/offer.h"
#include "nccl_plugin/collnet/settings.h"
#include "nccl_plugin/process.h"

namespace clustar::nccl_plugin {
namespace {

// Without destructors: unloading looks here.
constinit std::mutex open_mutex;
constinit CollComm* open_comms = nullptr;

__attribute__((destructor)) void end_at_unload() { CollComm::abort_all(); }

Result<void> check(const char* what, const CollRange& range, std::size_t bytes) {
  if (bytes == 0) return {};
  if (range.memory == nullptr) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} memory that is not registered", what));
  }
  const gdr::MemoryRef& memory = range.memory->memory;
  const bool inside = range.data >= memory.address && bytes <= memory.length &&
                      static_cast<std::size_t>(range.data - memory.address) <= memory.length - bytes;
  if (inside) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} {} bytes at {} are outside the registered {} bytes at {}",
                                                       what, bytes, static_cast<const void*>(range.data), memory.length,
                                                       static_cast<const void*>(memory.address)));
}

bool overlap(std::span<const std::byte> a, const gdr::MemoryRef& b) {
  return !a.empty() && a.data() < b.address + b.length && b.address < a.data() + a.size();
}

Duration stall_of(const PluginState& plugin) {
  const Duration stall = plugin.config().get<CollNetSettings>().stall;
  constexpr auto kForever = std::chrono::hours(24 * 365);
  return stall > Duration{} ? stall : kForever;
}

// What the tuner goes by: of each power of two, whether the planner promises more than what it does not know of: each
// piece is handed from the proxy to the engine and back, which took 1.1 to 1.6 times the ring's time where both plans
// are rings (docs/results/collnet-2026-11-29.md).
std::uint64_t wins_of(const paraexpress::Engine& engine) {
  constexpr double kMargin = 1.5;
  constexpr unsigned kLargest = 40;
  std::uint64_t wins = 0;
  for (unsigned bit = 0; bit <= kLargest; ++bit) {
    if (engine.gain_over_ring(std::uint64_t{1} << bit) >= kMargin) wins |= std::uint64_t{1} << bit;
  }
  return wins;
}

// "1 B to 256 KiB, 4 MiB to 16 MiB": from the first size of each run of bits to the last.
std::string sizes_of(std::uint64_t wins) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  const auto size = [&](unsigned bit) { return fmt::format("{} {}", 1u << bit % 10, kUnits[bit / 10]); };
  std::string text;
  for (unsigned bit = 0; bit < 50;) {
    const auto run = static_cast<unsigned>(std::countr_one(wins >> bit));
    if (run > 0) text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", size(bit), size(bit + run - 1));
    bit += run + 1;
  }
  return text.empty() ? "no size" : text;
}

}  // namespace

CollComm::CollComm(std::shared_ptr<PluginState> plugin, const Options& options)
    : plugin_(std::move(plugin)), options_(options) {
  list();
}

// Who still waits for this rank, as it aborts, learns of it at once: the engine would think that it is done.
CollComm::~CollComm() {
  unlist();
  if (engine_ == nullptr) return;
  constexpr std::chrono::milliseconds kPatience{20};
  ring_->tell({started_, Started::kLeaves});
  ring_->flush(kPatience);
  engine_->close();
}

void CollComm::list() {
  const std::lock_guard lock(open_mutex);
  next_ = open_comms;
  open_comms = this;
}

void CollComm::unlist() {
  const std::lock_guard lock(open_mutex);
  for (CollComm** at = &open_comms; *at != nullptr; at = &(*at)->next_) {
    if (*at != this) continue;
    *at = next_;
    return;
  }
}

void CollComm::abort_all() {
  const std::lock_guard lock(open_mutex);
  for (CollComm* comm = open_comms; comm != nullptr; comm = comm->next_) comm->abort("its library was unloaded");
}

Result<std::unique_ptr<CollComm>> CollComm::connect(std::shared_ptr<PluginState> plugin, transport::Listener& listener,
                                                    std::span<const transport::Handle> handles,
                                                    const Options& options) {
  std::unique_ptr<CollComm> comm(new CollComm(std::move(plugin), options));
  if (const auto ok = comm->set_up(listener, handles); !ok) return tl::unexpected(ok.error());
  return comm;
}

Result<void> CollComm::set_up(transport::Listener& listener, std::span<const transport::Handle> handles) {
  const auto begin = std::chrono::steady_clock::now();
  const auto until = begin + kSetUp;
  transport::Transport& transport = *plugin_->transport();
  const transport::ChannelOptions channel =
      collnet_channel(*plugin_, options_.comm_id, static_cast<int>(options_.rank));
  auto ring = ControlRing::connect(transport, listener, handles,
                                   {options_.rank, options_.ranks, options_.device, channel, until});
  if (!ring) return tl::unexpected(ring.error());
  ring_ = std::move(*ring);
  paraexpress::EngineOptions engine;
  engine.rank = options_.rank;
  engine.ranks = options_.ranks;
  engine.device = options_.device;
  engine.stall = stall_of(*plugin_);
  engine.setup = kSetUp;
  engine.setup_until = until;
  engine.channel = channel;
  auto made = paraexpress::Engine::create(
      transport, [this](std::span<const std::byte> mine) { return ring_->all_gather(mine); }, engine);
  if (!made) return tl::unexpected(made.error());
  engine_ = std::move(*made);
  if (const auto ok = ring_->open(); !ok) return ok;
  const std::uint64_t wins = wins_of(*engine_);
  if (options_.comm_id != 0) process_registry().set_collnet(options_.comm_id, wins);
  const auto plan = [this](std::uint64_t bytes) { return paraexpress::to_string(engine_->plan_for(bytes)); };
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  plugin_->log().info(
      fmt::format("CollNet: rank {} of {} connected on {} in {:.3f} s; the planner takes it to be faster than a ring "
                  "for all-reduces "
                  "of {} (by the plan {} at 64 KiB, {} at 16 MiB)",
                  options_.rank, options_.ranks, transport.devices()[static_cast<std::size_t>(options_.device)].name,
                  seconds, sizes_of(wins), plan(64 << 10), plan(16 << 20)));
  return {};
}

Result<CollMemory*> CollComm::reg_mr(const gdr::MemoryRef& memory) {
  const std::lock_guard lock(mutex_);
  int& users = registered_[{memory.address, memory.length}];
  if (users == 0 && memory.length > 0) {
    if (const auto ok = engine_->add_memory(memory.address, memory.length); !ok) {
      registered_.erase({memory.address, memory.length});
      return tl::unexpected(ok.error());
    }
  }
  ++users;
  memories_.push_back(std::make_unique<CollMemory>(CollMemory{memory}));
  return memories_.back().get();
}

void CollComm::dereg_mr(CollMemory* memory) {
  std::unique_lock lock(mutex_);
  const auto found = std::ranges::find(memories_, memory, &std::unique_ptr<CollMemory>::get);
  if (found == memories_.end()) return;
  bool busy = false;
  for (const auto& request : requests_) {
    if (!overlap(request->used_, memory->memory)) continue;
    busy = request->taken_back_ = true;
  }
  if (busy) {
    lock.unlock();
    abort("it took back memory while an operation was under way there");
    lock.lock();
  }
  const Place place{memory->memory.address, memory->memory.length};
  if (--registered_[place] == 0) {
    registered_.erase(place);
    if (place.second > 0) engine_->remove_memory(place.first, place.second);
  }
  std::erase_if(memories_, [&](const auto& one) { return one.get() == memory; });
}

void CollComm::abort(const std::string& why) {
  if (engine_ == nullptr) return;
  engine_->abort(why);
  engine_->close();
}

CollRequest* CollComm::add(std::unique_ptr<CollRequest> request) {
  requests_.push_back(std::move(request));
  return requests_.back().get();
}

void CollComm::tell(std::uint32_t kind, Arithmetic how, std::size_t bytes, const Window& window) {
  ring_->tell({started_++, kind, static_cast<std::uint16_t>(how.type), static_cast<std::uint16_t>(how.reduction), bytes,
               window.offset, window.bytes_per_rank});
  compare();
}

void CollComm::compare() {
  if (const auto same = ring_->poll(); !same) fail_all(same.error());
}

void CollComm::fail_all(const Error& why) {
  if (found_) return;
  found_ = why;
  engine_->abort(why.message);
}

std::span<std::byte> CollComm::take_room(std::size_t bytes) {
  for (Room& room : rooms_) {
    if (room.taken || room.bytes < bytes) continue;
    room.taken = true;
    return std::span(room.memory.get(), bytes);
  }
  constexpr std::size_t kLeast = 64 << 10;
  Room room;
  room.bytes = std::max(std::bit_ceil(bytes), kLeast);
  room.memory.reset(new std::byte[room.bytes]);
  if (const auto ok = engine_->add_memory(room.memory.get(), room.bytes); !ok) fail_all(ok.error());
  room.taken = true;
  rooms_.push_back(std::move(room));
  return std::span(rooms_.back().memory.get(), bytes);
}

Result<CollRequest*> CollComm::all_reduce(const CollRange& send, const CollRange& recv, std::size_t count,
                                          Arithmetic how) {
  const std::size_t element = paraexpress::element_bytes(how.type);
  if (count > PTRDIFF_MAX / element) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("an all-reduce of {} elements: no memory is that long", count));
  }
  const std::size_t bytes = count * element;
  const std::lock_guard lock(mutex_);
  if (const auto ok = check("an all-reduce sends", send, bytes); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check("an all-reduce receives", recv, bytes); !ok) return tl::unexpected(ok.error());
  std::unique_ptr<CollRequest> request(new CollRequest(*this, bytes));
  if (bytes > 0 && send.data != recv.data) std::memmove(recv.data, send.data, bytes);
  request->used_ = {recv.data, bytes};
  tell(Started::kAllReduce, how, bytes, {});
  request->operations_.push_back(engine_->all_reduce(recv.data, count, how.type, how.reduction));
  return add(std::move(request));
}

Result<CollRequest*> CollComm::all_gather(const CollRange& send, const CollRange& recv, const Window& window) {
  if (const auto ok = check(window, 1); !ok) return tl::unexpected(ok.error());
  const Share own = share_of(window, options_.rank);
  const std::lock_guard lock(mutex_);
  if (const auto ok = check("an all-gather sends", send, own.bytes); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check("an all-gather receives", recv, window.bytes); !ok) return tl::unexpected(ok.error());
  std::unique_ptr<CollRequest> request(new CollRequest(*this, window.bytes));
  if (own.bytes > 0 && recv.data + own.begin != send.data) std::memmove(recv.data + own.begin, send.data, own.bytes);
  request->used_ = {recv.data, window.bytes};
  tell(Started::kAllGather, {paraexpress::DataType::kUint8, paraexpress::Reduction::kSum}, window.bytes, window);
  if (window.whole()) {
    request->operations_.push_back(engine_->all_gather(recv.data, window.bytes_per_rank));
  } else {
    for (const Share& share : shares_of(window)) {
      request->operations_.push_back(engine_->broadcast(recv.data + share.begin, share.bytes, share.rank));
    }
  }
  return add(std::move(request));
}

// What NCCL sends is the user's own buffer where that is registered, so the sum is made beside it.
Result<CollRequest*> CollComm::reduce_scatter(const CollRange& send, const CollRange& recv, const Window& window,
                                              Arithmetic how) {
  const std::size_t element = paraexpress::element_bytes(how.type);
  if (const auto ok = check(window, element); !ok) return tl::unexpected(ok.error());
  const Share own = share_of(window, options_.rank);
  const std::lock_guard lock(mutex_);
  if (const auto ok = check("a reduce-scatter sends", send, window.bytes); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check("a reduce-scatter receives", recv, own.bytes); !ok) return tl::unexpected(ok.error());
  std::unique_ptr<CollRequest> request(new CollRequest(*this, window.bytes));
  const auto room = take_room(window.bytes);
  request->room_ = room;
  if (window.bytes > 0) std::memcpy(room.data(), send.data, window.bytes);
  request->used_ = {recv.data, own.bytes};
  request->result_ = room.subspan(own.begin, own.bytes);
  request->result_to_ = recv.data;
  tell(Started::kReduceScatter, how, window.bytes, window);
  if (window.whole()) {
    request->operations_.push_back(
        engine_->reduce_scatter(room.data(), window.bytes_per_rank / element, how.type, how.reduction));
  } else {
    request->operations_.push_back(engine_->all_reduce(room.data(), window.bytes / element, how.type, how.reduction));
  }
  return add(std::move(request));
}

void CollComm::finish(CollRequest* request) {
  for (Room& room : rooms_) {
    if (room.memory.get() == request->room_.data()) room.taken = false;
  }
  std::erase_if(requests_, [&](const auto& one) { return one.get() == request; });
}

Result<bool> CollComm::test(CollRequest* request) {
  const std::lock_guard lock(mutex_);
  compare();
  while (!request->operations_.empty()) {
    if (!request->operations_.back()->done()) return false;
    const auto ended = request->operations_.back()->wait();
    if (!ended) {
      const Error why = found_.value_or(ended.error());
      if (!told_) plugin_->log().warn("CollNet: " + why.message);
      told_ = true;
      finish(request);
      return tl::unexpected(why);
    }
    request->operations_.pop_back();
  }
  if (request->taken_back_) {
    finish(request);
    return fail(ErrorCode::kInvalidUsage, "memory of the operation was deregistered before its end");
  }
  if (!request->result_.empty()) std::memcpy(request->result_to_, request->result_.data(), request->result_.size());
  finish(request);
  return true;
}

}  // namespace clustar::nccl_plugin
