#include "bench/trainer/nccl/direct_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "bench/trainer/graph/cuda/device_code.h"
#include "gdr/kernels/arguments.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kBlockBytes = 4096;  // of what is marked: a few packets, or half of one
constexpr std::size_t kBlockElements = kBlockBytes / sizeof(float);
constexpr unsigned kWarp = 32;
constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = CLUSTAR_MOST_BLOCKS;

std::size_t blocks_of(std::size_t count) { return (count + kBlockElements - 1) / kBlockElements; }

template <class T>
T* as(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}

}  // namespace

struct DirectExchange::Marking {
  DirectExchange& exchange;
  const float* weights;  // of the blocks, in host memory: a room that a larger bucket may have outgrown since
  const float* values;
  std::size_t count;
  std::shared_ptr<ExchangeNotes> notes;
};

struct DirectExchange::Looking {
  DirectExchange& exchange;
  std::vector<Arrival> arrivals;
  std::size_t elements;  // of the own block
  std::shared_ptr<ExchangeNotes> notes;
};

Result<std::unique_ptr<DirectExchange>> DirectExchange::open(const DirectOptions& options, const std::string& comm_name,
                                                             int rank, int size) {
  std::unique_ptr<DirectExchange> made(new DirectExchange(options, comm_name, rank, size));
  const std::string driver = options.driver.empty() ? gdr::launch::kCudaDriver : options.driver;
  auto device = gdr::launch::Device::open(driver, gdr::launch::clustar_trainer_device_code, rank);
  if (!device) return tl::unexpected(device.error());
  made->device_ = std::move(*device);
  if (auto ok = made->open_plugin(); !ok) return tl::unexpected(ok.error());
  return made;
}

Result<void> DirectExchange::open_plugin() {
  auto reports = proxy::plugin_loss_reports(options_.plugin);
  if (!reports) return tl::unexpected(reports.error());
  reports_ = std::move(*reports);
  auto opened = proxy::open_library(options_.plugin);
  if (!opened) return tl::unexpected(opened.error());
  library_ = std::move(opened->library);
  api_ = static_cast<const clustarApi_v1_t*>(proxy::find_symbol(library_.get(), "clustarApi_v1"));
  if (options_.important <= 0) return {};
  marker_ = static_cast<const clustarApi_v2_t*>(proxy::find_symbol(library_.get(), "clustarApi_v2"));
  if (marker_ != nullptr) return {};
  return fail(ErrorCode::kUnavailable,
              fmt::format("CLUSTAR_LOSS_IMPORTANT: '{}' has no clustarApi_v2, by which gradients of a GPU are marked; "
                          "leave it unset, or take clustar's plugin",
                          options_.plugin));
}

Result<void> DirectExchange::registered(NcclCommunicator& communicator, std::byte* memory, std::size_t bytes) {
  void* handle = nullptr;
  const int result = communicator.nccl().comm_register(communicator.comm(), memory, bytes, &handle);
  if (auto ok = communicator.settle(result, "ncclCommRegister"); !ok) return ok;
  registrations_.push_back(handle);
  return {};
}

Result<void> DirectExchange::adopt(NcclCommunicator& communicator, std::byte* memory, std::size_t bytes) {
  adopted_.push_back({memory, bytes});
  return registered(communicator, memory, bytes);
}

Result<void> DirectExchange::grow(const NcclCommunicator& communicator, Room& room, std::size_t bytes, bool pinned) {
  if (bytes <= room.bytes) return {};
  const CudaCalls& cuda = communicator.cuda();
  Room larger;
  void* device = nullptr;
  if (auto ok = communicator.check_cuda(cuda.malloc(&device, bytes), "cudaMalloc"); !ok) {
    return fail(ok.error().code, fmt::format("{} of {} bytes", ok.error().message, bytes));
  }
  larger.device = static_cast<std::byte*>(device);
  larger.bytes = bytes;
  if (room.device != nullptr) outgrown_.push_back(std::move(room));
  room = std::move(larger);
  if (!pinned) return {};
  room.host = std::make_unique<std::byte[]>(bytes);
  // A copy of pageable memory would make the caller wait for the stream.
  if (auto ok = communicator.check_cuda(cuda.host_register(room.host.get(), bytes, 0), "cudaHostRegister"); !ok) {
    return ok;
  }
  room.pinned = true;
  return {};
}

Result<void> DirectExchange::make_room(NcclCommunicator& communicator, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t share = proxy::block_share(size_, count, sizeof(float)) * sizeof(float);
  if (share * (ranks - 1) > contributions_.bytes) {
    if (auto ok = grow(communicator, contributions_, share * (ranks - 1), false); !ok) return ok;
    // NCCL sends from registered memory only into registered memory.
    if (auto ok = registered(communicator, contributions_.device, contributions_.bytes); !ok) return ok;
  }
  if (auto ok = grow(communicator, sums_, share * ranks, false); !ok) return ok;
  if (auto ok = grow(communicator, tables_, MissingTables::kWords * sizeof(std::uint64_t), true); !ok) return ok;
  if (marker_ == nullptr) return {};
  return grow(communicator, weights_, blocks_of(count) * sizeof(float), true);
}

Result<void> DirectExchange::all_reduce(NcclCommunicator& communicator, float* values, std::size_t count,
                                        const std::shared_ptr<ExchangeNotes>& notes) {
  if (auto ok = make_room(communicator, count); !ok) return ok;
  if (marker_ != nullptr && blocks_of(count) <= kMostBlocks) {
    if (auto ok = mark_important(communicator, values, count, notes); !ok) return ok;
  }
  const proxy::Block own = proxy::direct_block(rank_, size_, count, sizeof(float));
  const std::size_t share = proxy::block_share(size_, count, sizeof(float));
  std::vector<Arrival> arrivals;
  if (auto ok = exchange(communicator, values, count, arrivals); !ok) return ok;
  if (own.count > 0) {
    if (auto ok = look_for_losses(communicator, std::move(arrivals), own.count, notes); !ok) return ok;
    if (auto ok = add_up(values, own, share); !ok) return ok;
  }
  const std::size_t bytes = share * sizeof(float);
  const int gathered =
      communicator.nccl().all_gather(sums_.device + static_cast<std::size_t>(rank_) * bytes, sums_.device, bytes,
                                     kNcclUint8, communicator.comm(), communicator.stream());
  if (auto ok = communicator.settle(gathered, "ncclAllGather"); !ok) return ok;
  return device_->copy(values, sums_.device, count * sizeof(float));
}

// The plugin looks at marks when NCCL's proxy sends, which is after the send's kernel has begun, and so behind this.
Result<void> DirectExchange::mark_important(NcclCommunicator& communicator, const float* values, std::size_t count,
                                            const std::shared_ptr<ExchangeNotes>& notes) {
  const std::size_t blocks = blocks_of(count);
  const auto launched = device_->launch(gdr::kImportanceF32, device_->grid_for(blocks * kWarp, kThreads),
                                        {values, count, kBlockElements, as<float>(weights_.device)});
  if (!launched) return launched;
  const CudaCalls& cuda = communicator.cuda();
  const int copied = cuda.memcpy_async(weights_.host.get(), weights_.device, blocks * sizeof(float), kDeviceToHost,
                                       communicator.stream());
  if (auto ok = communicator.check_cuda(copied, "cudaMemcpyAsync"); !ok) return ok;
  auto marking = std::make_unique<Marking>(Marking{*this, as<const float>(weights_.host.get()), values, count, notes});
  const int queued = cuda.launch_host_function(communicator.stream(), mark, marking.get());
  if (auto ok = communicator.check_cuda(queued, "cudaLaunchHostFunc"); !ok) return ok;
  static_cast<void>(marking.release());  // mark() deletes it
  return {};
}

void DirectExchange::mark(void* marking) {
  const std::unique_ptr<Marking> to(static_cast<Marking*>(marking));
  DirectExchange& self = to->exchange;
  const std::size_t blocks = blocks_of(to->count);
  const auto marks = most_important(std::span(to->weights, blocks), self.options_.important);
  const int marked =
      self.marker_->markImportance(to->values, to->count * sizeof(float), kBlockBytes, marks.data(), blocks);
  if (marked == CLUSTAR_OK) return;
  to->notes->error =
      Error{ErrorCode::kInternal, fmt::format("the plugin's markImportance of {} blocks returned {}; allowed is "
                                              "CLUSTAR_OK",
                                              blocks, marked)};
}

Result<void> DirectExchange::exchange(NcclCommunicator& communicator, const float* values, std::size_t count,
                                      std::vector<Arrival>& arrivals) {
  const NcclCalls& nccl = communicator.nccl();
  const proxy::Block own = proxy::direct_block(rank_, size_, count, sizeof(float));
  int result = nccl.group_start();
  for (int peer = 0; peer < size_ && result == kNcclSuccess; ++peer) {
    if (peer == rank_) continue;
    const proxy::Block theirs = proxy::direct_block(peer, size_, count, sizeof(float));
    if (theirs.count > 0) {
      result = nccl.send(values + theirs.begin, theirs.count, kNcclFloat32, peer, communicator.comm(),
                         communicator.stream());
    }
    if (own.count > 0 && result == kNcclSuccess) {
      arrivals.push_back({peer, receives_[static_cast<std::size_t>(peer)]++});
      result =
          nccl.recv(contribution(peer, own), own.count, kNcclFloat32, peer, communicator.comm(), communicator.stream());
    }
  }
  const int ended = nccl.group_end();
  return communicator.settle(result != kNcclSuccess ? result : ended, "ncclGroupEnd");
}

// What is missing is known once the receives are done, which the next work in the stream may take for granted.
Result<void> DirectExchange::look_for_losses(NcclCommunicator& communicator, std::vector<Arrival> arrivals,
                                             std::size_t elements, const std::shared_ptr<ExchangeNotes>& notes) {
  const CudaCalls& cuda = communicator.cuda();
  auto looking = std::make_unique<Looking>(Looking{*this, std::move(arrivals), elements, notes});
  const int queued = cuda.launch_host_function(communicator.stream(), look, looking.get());
  if (auto ok = communicator.check_cuda(queued, "cudaLaunchHostFunc"); !ok) return ok;
  static_cast<void>(looking.release());  // look() deletes it
  const int copied =
      cuda.memcpy_async(tables_.device, tables_.host.get(), tables_.bytes, kHostToDevice, communicator.stream());
  return communicator.check_cuda(copied, "cudaMemcpyAsync");
}

void DirectExchange::look(void* looking) {
  const std::unique_ptr<Looking> at(static_cast<Looking*>(looking));
  DirectExchange& self = at->exchange;
  std::vector<std::vector<proxy::ElementRange>> missing(static_cast<std::size_t>(self.size_));
  for (const Arrival& arrival : at->arrivals) {
    auto ranges = self.missing_of(arrival, at->elements);
    if (!ranges) {
      at->notes->error = ranges.error();
      break;
    }
    missing[static_cast<std::size_t>(arrival.sender)] = std::move(*ranges);
  }
  join_ranges(missing, kMostMissingRanges);
  for (const auto& ranges : missing) at->notes->missing += proxy::count_of(ranges);
  at->notes->expected += at->arrivals.size() * at->elements;
  MissingTables(std::span(as<std::uint64_t>(self.tables_.host.get()), MissingTables::kWords))
      .fill(missing, self.rank_, at->elements * sizeof(float), self.options_.missing == proxy::Missing::kRescale);
}

Result<std::vector<proxy::ElementRange>> DirectExchange::missing_of(const Arrival& arrival, std::size_t elements) {
  const std::uint64_t id = comm_id();
  if (!knows_comm_id_) return std::vector<proxy::ElementRange>{};  // then nothing of it was allowed to be lost
  const auto lost = reports_->missing_from(id, arrival.sender, arrival.number);
  if (!lost) return tl::unexpected(lost.error());
  const std::size_t bytes = elements * sizeof(float);
  // From registered memory NCCL makes one transfer of a send, from its own buffers one of each chunk.
  const bool whole = std::all_of(lost->begin(), lost->end(), [](const auto& part) { return part.transfer == 0; });
  const std::size_t chunk = whole ? bytes : proxy::p2p_chunk_bytes(bytes);
  for (const proxy::LostBytes& part : *lost) {
    if (part.offset + part.bytes <= chunk && part.transfer * chunk + part.offset + part.bytes <= bytes) continue;
    return fail(
        ErrorCode::kInternal,
        fmt::format(
            "the plugin's listMissingFrom tells of {} bytes at {} of transfer {} of a send of {} bytes from rank "
            "{}, whose transfers have {}: which elements they are is not known",
            part.bytes, part.offset, part.transfer, bytes, arrival.sender, chunk));
  }
  return proxy::lost_elements(*lost, chunk, bytes, sizeof(float));
}

// NCCL numbers communicators by itself: the plugin's list has the number beside the name.
std::uint64_t DirectExchange::comm_id() {
  if (knows_comm_id_ || api_ == nullptr) return comm_id_;
  std::vector<clustarCollective_v1> list(4096);
  for (clustarCollective_v1& one : list) one.size = sizeof one;
  std::size_t count = 0;
  if (api_->listCollectives(list.data(), list.size(), &count) != CLUSTAR_OK) return comm_id_;
  for (const clustarCollective_v1& one : std::span(list).first(count)) {
    if (one.comm_name != comm_name_) continue;
    comm_id_ = one.comm_id;
    knows_comm_id_ = true;
    break;
  }
  return comm_id_;
}

float* DirectExchange::contribution(int rank, const proxy::Block& own) const {
  const auto place = static_cast<std::size_t>(rank < rank_ ? rank : rank - 1);
  return as<float>(contributions_.device) + place * own.count;
}

// In rank order, so that a run can be repeated bit for bit, and with the proxy's bits.
Result<void> DirectExchange::add_up(const float* values, const proxy::Block& own, std::size_t share) {
  const auto* const table = as<const unsigned long long>(tables_.device);
  const auto zeroed = device_->launch(gdr::kZeroRanges, device_->grid_for(kMostMissingRanges * kThreads, kThreads),
                                      {as<unsigned char>(contributions_.device), table, kMostMissingRanges});
  if (!zeroed) return zeroed;
  float* const sum = as<float>(sums_.device) + static_cast<std::size_t>(rank_) * share;
  const auto of = [&](int rank) { return rank == rank_ ? values + own.begin : contribution(rank, own); };
  if (auto ok = device_->copy(sum, of(0), own.count * sizeof(float)); !ok) return ok;
  for (int rank = 1; rank < size_; ++rank) {
    const auto added =
        device_->launch(gdr::kSumF32, device_->grid_for(own.count, kThreads), {sum, of(rank), own.count});
    if (!added) return added;
  }
  if (options_.missing != proxy::Missing::kRescale) return {};
  return device_->launch(
      gdr::kRescaleF32, device_->grid_for(MissingTables::kSegments * kThreads, kThreads),
      {sum, table + MissingTables::kZeroWords, MissingTables::kSegments, static_cast<unsigned>(size_)});
}

Result<void> DirectExchange::give_up_registrations(NcclCommunicator& communicator) {
  Result<void> first;
  // NCCL wants what it sends from to be done with.
  if (!communicator.drained()) return first;
  for (void* handle : std::exchange(registrations_, {})) {
    const int result = communicator.nccl().comm_deregister(communicator.comm(), handle);
    if (auto ok = communicator.settle(result, "ncclCommDeregister"); !ok && first) first = ok;
  }
  return first;
}

Result<void> DirectExchange::free_memory(const NcclCommunicator& communicator) {
  Result<void> first;
  const CudaCalls& cuda = communicator.cuda();
  for (Room* room : {&contributions_, &sums_, &tables_, &weights_}) outgrown_.push_back(std::move(*room));
  for (const Room& room : std::exchange(outgrown_, {})) {
    const auto keep = [&](int result, const char* call) {
      if (auto ok = communicator.check_cuda(result, call); !ok && first) first = ok;
    };
    if (room.pinned) keep(cuda.host_unregister(room.host.get()), "cudaHostUnregister");
    if (room.device != nullptr) keep(cuda.free(room.device), "cudaFree");
  }
  for (const auto& [memory, bytes] : std::exchange(adopted_, {})) {
    if (marker_ != nullptr) marker_->forgetImportance(memory, bytes);  // none is no error here
  }
  return first;
}

}  // namespace clustar::bench::trainer
