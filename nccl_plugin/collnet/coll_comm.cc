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

// v2.28.9 src/transport/coll_net.cc, collNetIallreduce: both addresses are in what is sent from.
constexpr const char* kMixedUp =
    ": NCCL sends from host memory and receives into a GPU's, and takes one for the other; NCCL_NET_GDR_READ=1 has "
    "both in GPU memory, CLUSTAR_GDR=off both in the host's";

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

// Of memory that check() allowed.
WorkPlace work_of(const CollRange& range) {
  HostTwin* const twin = range.twin();
  return {twin == nullptr ? range.data : twin->at(range.data), twin};
}
WorkPlace behind(const WorkPlace& place, std::size_t bytes) { return {place.data + bytes, place.twin}; }

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
    : plugin_(std::move(plugin)), options_(options) {}

// Who still waits for this rank, as it aborts, learns of it at once: the engine would think that it is done.
CollComm::~CollComm() {
  if (engine_ == nullptr) return;
  constexpr std::chrono::milliseconds kPatience{20};
  ring_->tell({started_, Started::kLeaves});
  ring_->flush(kPatience);
  engine_->close();
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
  rooms_ = std::make_unique<paraexpress::Staging>(
      [this](auto& room) { return engine_->add_memory(room.memory.get(), room.bytes); },
      [this](auto& room) { (void)engine_->remove_memory(room.memory.get(), room.bytes); });
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

Result<std::unique_ptr<HostTwin>> CollComm::make_twin(const gdr::MemoryRef& memory) {
  if (memory.kind == gdr::MemoryKind::kHost || memory.length == 0) return nullptr;
  if (memory.length > kMostTwins - twins_bytes_) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} bytes of GPU memory beside {}: they are copied by way of as much pinned host memory; "
                            "allowed: {} bytes together",
                            memory.length, twins_bytes_, kMostTwins));
  }
  auto twin = HostTwin::make(**plugin_->gpu_copies(), memory);
  if (!twin) return fail(twin.error().code, "copies of GPU memory: " + twin.error().message);
  return twin;
}

Result<void> CollComm::with_engine(const gdr::MemoryRef& memory, HostTwin* twin) {
  if (memory.length == 0) return {};
  return engine_->add_memory(twin == nullptr ? memory.address : twin->host().data(), memory.length);
}

Result<CollMemory*> CollComm::reg_mr(const gdr::MemoryRef& memory) {
  const std::lock_guard one_at_a_time(registering_);
  const bool gpu = memory.kind != gdr::MemoryKind::kHost;
  Region& region = regions_[{memory.address, memory.length, gpu}];
  if (region.users == 0) {
    auto twin = make_twin(memory);
    const auto ok = twin ? with_engine(memory, twin->get()) : tl::unexpected(twin.error());
    if (!ok) {
      regions_.erase({memory.address, memory.length, gpu});
      return tl::unexpected(ok.error());
    }
    region.twin = std::move(*twin);
    if (region.twin != nullptr) twins_bytes_ += memory.length;
  }
  ++region.users;
  const std::lock_guard lock(mutex_);
  any_twins_ = any_twins_ || region.twin != nullptr;
  memories_.push_back(std::make_unique<CollMemory>(CollMemory{memory, region.twin.get()}));
  return memories_.back().get();
}

void CollComm::dereg_mr(CollMemory* memory) {
  const std::lock_guard one_at_a_time(registering_);
  std::unique_lock lock(mutex_);
  const auto found = std::ranges::find(memories_, memory, &std::unique_ptr<CollMemory>::get);
  if (found == memories_.end()) return;
  const gdr::MemoryRef what = memory->memory;
  bool busy = false;
  for (const auto& request : requests_) {
    if (request->outcome || !request->uses(what)) continue;
    busy = request->taken_back = true;
  }
  if (busy) {
    const std::string why = "it took back memory while an operation was under way there";
    fail_all({ErrorCode::kInvalidUsage, why});
    lock.unlock();
    abort(why);
    lock.lock();
  }
  std::erase_if(memories_, [&](const auto& one) { return one.get() == memory; });
  lock.unlock();
  const auto region = regions_.find({what.address, what.length, what.kind != gdr::MemoryKind::kHost});
  if (--region->second.users > 0) return;
  HostTwin* const twin = region->second.twin.get();
  if (what.length > 0) {
    (void)engine_->remove_memory(twin == nullptr ? what.address : twin->host().data(), what.length);
  }
  if (twin != nullptr) twins_bytes_ -= what.length;
  regions_.erase(region);
}

void CollComm::abort(const std::string& why) {
  if (engine_ == nullptr) return;
  engine_->abort(why);
  engine_->close();
}

CollRequest* CollComm::add(std::unique_ptr<CollRequest> request) {
  requests_.push_back(std::move(request));
  settle(*requests_.back());
  return requests_.back().get();
}

void CollComm::tell(CollRequest& request, std::uint32_t kind, Arithmetic how, const Window& window) {
  const Started started{started_++,
                        kind,
                        static_cast<std::uint16_t>(how.type),
                        static_cast<std::uint16_t>(how.reduction),
                        request.bytes(),
                        window.offset,
                        window.bytes_per_rank};
  request.fingerprint = fingerprint_of(started);
  ring_->tell(started);
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
  if (auto ok = check("an all-reduce receives", recv, bytes); !ok) {
    if (send.twin() == nullptr && recv.twin() != nullptr) ok.error().message += kMixedUp;
    return tl::unexpected(ok.error());
  }
  auto request = std::make_unique<CollRequest>(*this, bytes);
  const WorkPlace work = work_of(recv);
  request->brings(send, bytes, work);
  request->takes(work, recv, bytes);
  request->runs([this, work, count, how](auto& operations) {
    operations.push_back(engine_->all_reduce(work.data, count, how.type, how.reduction));
  });
  tell(*request, Started::kAllReduce, how, {});
  return add(std::move(request));
}

Result<CollRequest*> CollComm::all_gather(const CollRange& send, const CollRange& recv, const Window& window) {
  if (const auto ok = check(window, 1); !ok) return tl::unexpected(ok.error());
  const Share own = share_of(window, options_.rank);
  const std::lock_guard lock(mutex_);
  if (const auto ok = check("an all-gather sends", send, own.bytes); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check("an all-gather receives", recv, window.bytes); !ok) return tl::unexpected(ok.error());
  auto request = std::make_unique<CollRequest>(*this, window.bytes);
  const WorkPlace work = work_of(recv);
  request->brings(send, own.bytes, behind(work, own.begin));
  request->takes(work, recv, window.bytes);
  request->runs([this, work, window](auto& operations) {
    if (window.whole()) {
      operations.push_back(engine_->all_gather(work.data, window.bytes_per_rank));
      return;
    }
    for (const Share& share : shares_of(window)) {
      operations.push_back(engine_->broadcast(work.data + share.begin, share.bytes, share.rank));
    }
  });
  tell(*request, Started::kAllGather, {paraexpress::DataType::kUint8, paraexpress::Reduction::kSum}, window);
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
  auto request = std::make_unique<CollRequest>(*this, window.bytes);
  WorkPlace work = work_of(send);
  if (work.twin != nullptr) {
    request->works_in_what_it_sends({work.data, window.bytes});
  } else {
    auto room = rooms_->take(window.bytes);
    if (!room) {
      fail_all(room.error());
      return add(std::move(request));
    }
    work.data = (*room)->memory.get();
    request->works_in(*room);
  }
  request->brings(send, window.bytes, work);
  request->takes(behind(work, own.begin), recv, own.bytes);
  request->runs([this, work, window, element, how](auto& operations) {
    operations.push_back(
        window.whole() ? engine_->reduce_scatter(work.data, window.bytes_per_rank / element, how.type, how.reduction)
                       : engine_->all_reduce(work.data, window.bytes / element, how.type, how.reduction));
  });
  tell(*request, Started::kReduceScatter, how, window);
  return add(std::move(request));
}

bool CollComm::is_next(const CollRequest& request) const {
  for (const auto& one : requests_) {
    if (one.get() == &request) return true;
    if (!one->started() && !one->outcome) return false;
  }
  return true;
}

Result<bool> CollComm::advance(CollRequest& request) {
  if (!request.started()) {
    if (found_) return tl::unexpected(*found_);
    for (const auto& before : requests_) {
      if (before.get() == &request) break;
      if (!before->outcome && !before->works_beside(request)) return false;
    }
    if (const auto there = request.arrives(); !there || !*there) return there;
    if (!is_next(request)) return false;
    // The next rank's word may come when its bytes have long been here.
    engine_->agree_on(request.fingerprint);
    request.start();
  }
  if (const auto ended = request.sums(); !ended || !*ended) {
    return ended ? ended : tl::unexpected(found_.value_or(ended.error()));
  }
  if (request.taken_back) {
    return fail(ErrorCode::kInvalidUsage, "memory of the operation was deregistered before its end");
  }
  return request.leaves();
}

void CollComm::settle(CollRequest& request) {
  if (request.outcome) return;
  const auto done = advance(request);
  if (!done) {
    fail_all(done.error());
    request.outcome = tl::unexpected(done.error());
  } else if (*done) {
    request.outcome = Result<void>();
  } else if (request.stands_still()) {
    plugin_->log().warn(
        "CollNet: a copy between GPU and host memory has not ended for 10 s: a kernel that waits for it, or a thread "
        "that waits for the GPU with the driver's locks, stands in its way; CLUSTAR_GDR=off does without copies");
  }
}

void CollComm::finish(CollRequest* request) {
  if (request->room() != nullptr) rooms_->give_back(request->room());
  std::erase_if(requests_, [&](const auto& one) { return one.get() == request; });
}

// NCCL tests one request after the other; one that waits for another's end or turn must not wait for its test.
Result<bool> CollComm::test(CollRequest* request) {
  const std::lock_guard lock(mutex_);
  compare();
  if (any_twins_) {
    for (const auto& one : requests_) settle(*one);
  } else {
    settle(*request);
  }
  if (!request->outcome) return false;
  const Result<void> outcome = *request->outcome;
  finish(request);
  if (outcome) return true;
  if (!told_) plugin_->log().warn("CollNet: " + outcome.error().message);
  told_ = true;
  return tl::unexpected(outcome.error());
}

}  // namespace clustar::nccl_plugin
