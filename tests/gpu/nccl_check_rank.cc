#include "tests/gpu/nccl_check_rank.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "tests/gpu/lossy_replica.h"
#include "tests/gpu/nccl_check_bounds.h"
#include "tests/gpu/plugin_ledger.h"

namespace clustar::nccl_check {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr ncclDataType_t kTypes[] = {ncclInt32, ncclFloat32};
constexpr std::size_t kCaptured = 2;  // of collectives(): all-reduce and reduce-scatter

ncclUniqueId exchange_id(const Options& options) {
  ncclUniqueId id;
  if (options.rank == 0) {
    if (const auto result = ncclGetUniqueId(&id); result != ncclSuccess) {
      throw std::runtime_error(std::string("ncclGetUniqueId: ") + ncclGetErrorString(result));
    }
    const std::string draft = options.id_file + ".part";
    std::ofstream(draft, std::ios::binary).write(id.internal, sizeof id.internal);
    if (std::rename(draft.c_str(), options.id_file.c_str()) != 0) {
      throw std::runtime_error("cannot write --idfile '" + options.id_file + "'");
    }
    return id;
  }
  doing("waiting for rank 0's unique id in " + options.id_file);
  for (;;) {
    std::ifstream in(options.id_file, std::ios::binary);
    if (in.read(id.internal, sizeof id.internal)) return id;
    check_time();
    usleep(20'000);
  }
}

json speed(std::size_t bytes, double bus_factor, double seconds, int iterations) {
  const double gbytes_per_s = static_cast<double>(bytes) / seconds / 1e9;
  return {{"iterations", iterations},
          {"time_us", seconds * 1e6},
          {"algbw_gbytes_per_s", gbytes_per_s},
          {"busbw_gbytes_per_s", gbytes_per_s * bus_factor}};
}

void append(json& rows, json more) {
  for (auto& row : more) rows.push_back(std::move(row));
}

}  // namespace

Rank::Rank(const Options& options) : options_(options), recv_(options.graph > 0 ? kCaptured : 1) {
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  // One rank's part may be rounded up to an element.
  const std::size_t room = std::max(options.max_bytes, kElementBytes * static_cast<std::size_t>(options.size));
  check(cudaMalloc(&send_, room), "cudaMalloc");
  for (void*& recv : recv_) check(cudaMalloc(&recv, room + kGuardBytes), "cudaMalloc");
  const ncclUniqueId id = exchange_id(options);
  doing("joining the communicator");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Stream capture and ncclCommSplit are specified in full for blocking communicators only; the alarm bounds those.
  config.blocking = options.split || options.graph > 0 ? 1 : 0;
  world_ = {"world", nullptr, options.rank, options.size};
  const auto started = ncclCommInitRankConfig(&world_.comm, options.size, id, options.rank, &config);
  settle(started, world_.comm, "ncclCommInitRankConfig");
}

json Rank::run() {
  if (options_.split) return run_split();
  if (options_.graph > 0) return run_graphs();
  if (options_.train > 0) return run_training();
  return sweep(world_, sizes());
}

void Rank::close() {
  doing("closing the communicator");
  settle(ncclCommFinalize(world_.comm), world_.comm, "ncclCommFinalize");
  if (ncclCommDestroy(world_.comm) != ncclSuccess) throw std::runtime_error("ncclCommDestroy failed");
  check(cudaFree(send_), "cudaFree");
  for (void* recv : recv_) check(cudaFree(recv), "cudaFree");
  check(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

std::vector<std::size_t> Rank::sizes() const {
  std::vector<std::size_t> out;
  for (std::size_t bytes = options_.min_bytes; bytes < options_.max_bytes; bytes *= 8) out.push_back(bytes);
  out.push_back(options_.max_bytes);
  return out;
}

Rank::Communicator Rank::split(const Communicator& parent, const std::string& name, int color, int share) {
  doing("splitting " + parent.name + " into " + name);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.splitShare = share;
  Communicator child{name, nullptr, 0, 0};
  settle(ncclCommSplit(parent.comm, color, parent.rank, &child.comm, &config), parent.comm, "ncclCommSplit");
  settle(ncclCommCount(child.comm, &child.size), child.comm, "ncclCommCount");
  settle(ncclCommUserRank(child.comm, &child.rank), child.comm, "ncclCommUserRank");
  return child;
}

json Rank::run_split() {
  // Whether a child shares is written in its parent's configuration (NCCL v2.28.9 src/init.cc ncclCommInitChildComm):
  // the world's says no, that of its copy yes.
  const int color = options_.size >= 3 ? options_.rank % 2 : 0;
  json results = sweep(world_, {options_.max_bytes});
  const Communicator apart = split(world_, "split", color, 0);
  append(results, sweep(apart, sizes()));
  const Communicator copy = split(world_, "copy", 0, 1);
  append(results, sweep(copy, {options_.max_bytes}));
  const Communicator shared = split(copy, "shared-split", color, 1);
  append(results, sweep(shared, sizes()));
  // The parents' connections must have survived what their children did on them.
  append(results, sweep(copy, {options_.min_bytes}));
  append(results, sweep(world_, {options_.min_bytes}));
  for (const auto& child : {shared, copy, apart}) {
    doing("closing " + child.name);
    if (ncclCommDestroy(child.comm) != ncclSuccess) throw std::runtime_error("ncclCommDestroy failed");
  }
  return results;
}

json Rank::run_graphs() {
  json results = json::array();
  for (const std::size_t bytes : sizes()) {
    for (const ncclDataType_t type : kTypes) append(results, replay(bytes, type));
  }
  return results;
}

void Rank::sum_gradients(std::span<const float> gradient, std::span<float> sums) {
  const auto found = collectives(gradient.size_bytes(), world_.rank, world_.size);
  const Collective& all_reduce = found.front();
  check(cudaMemcpy(send_, gradient.data(), gradient.size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  poison(recv_[0], all_reduce);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  settle(all_reduce.start(send_, recv_[0], ncclFloat32, world_.comm, stream_), world_.comm, all_reduce.name);
  wait_for(stream_, world_.comm);
  check(cudaMemcpy(sums.data(), recv_[0], sums.size_bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

json Rank::run_training() {
  const auto ranks = static_cast<std::size_t>(world_.size);
  const std::size_t elements = std::max(options_.max_bytes / kElementBytes / ranks, std::size_t{1}) * ranks;
  LossyReplica replica(elements, world_.rank, world_.size);
  double seconds = 0;
  const SumGradients sum = [&](std::span<const float> gradient, std::span<float> sums) {
    doing("training on " + std::to_string(gradient.size_bytes()) + " bytes");
    const auto begin = Clock::now();
    sum_gradients(gradient, sums);
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  };
  json training = train(replica, options_.train, sum);
  training["ledger"] = plugin_ledger(plugin_path());
  json row = training_row(training, elements * kElementBytes, world_.size);
  const double share = 2.0 * (world_.size - 1) / world_.size;
  row.update(speed(elements * kElementBytes, share, seconds / options_.train, options_.train - 1));
  return json::array({std::move(row)});
}

json Rank::sweep(const Communicator& on, const std::vector<std::size_t>& sizes) {
  json results = json::array();
  for (const std::size_t bytes : sizes) {
    for (const Collective& collective : collectives(bytes, on.rank, on.size)) {
      for (const ncclDataType_t type : kTypes) results.push_back(measure(on, collective, type));
    }
  }
  return results;
}

json Rank::measure(const Communicator& on, const Collective& collective, ncclDataType_t type) {
  const std::size_t bytes = collective.bytes();
  doing(on.name + ": " + collective.name + " " + name_of(type) + " of " + std::to_string(bytes) + " bytes");
  const auto start = [&] {
    settle(collective.start(send_, recv_[0], type, on.comm, stream_), on.comm, collective.name);
  };
  fill(send_, collective.send_count, type, on.rank, 0);
  poison(recv_[0], collective);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  start();
  wait_for(stream_, on.comm);
  json result = compare(recv_[0], collective, type, 0);
  result.update({{"collective", collective.name}, {"type", name_of(type)}, {"bytes", bytes}});
  result.update({{"communicator", on.name}, {"ranks", on.size}});

  const int iterations = options_.iterations > 0 ? options_.iterations : bytes <= (64u << 10) ? 10 : 4;
  const auto begin = Clock::now();
  for (int i = 0; i < iterations; ++i) start();
  wait_for(stream_, on.comm);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / iterations;
  result.update(speed(bytes, collective.bus_factor, seconds, iterations));
  return result;
}

cudaGraphExec_t Rank::capture(const std::vector<Collective>& captured, ncclDataType_t type) {
  // Thread-local: NCCL's other threads may allocate meanwhile.
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (std::size_t i = 0; i < captured.size(); ++i) {
    settle(captured[i].start(send_, recv_[i], type, world_.comm, stream_), world_.comm, captured[i].name);
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return executable;
}

json Rank::replay(std::size_t bytes, ncclDataType_t type) {
  std::vector<Collective> captured = collectives(bytes, world_.rank, world_.size);
  captured.resize(kCaptured);
  doing("capturing " + std::string(name_of(type)) + " of " + std::to_string(bytes) + " bytes");
  const cudaGraphExec_t graph = capture(captured, type);
  std::vector<json> results(captured.size());
  double seconds = 0;
  for (int round = 0; round < options_.graph; ++round) {
    doing("replay " + std::to_string(round) + " of " + name_of(type) + " of " + std::to_string(bytes) + " bytes");
    fill(send_, captured[0].send_count, type, world_.rank, round);
    for (std::size_t i = 0; i < captured.size(); ++i) poison(recv_[i], captured[i]);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const auto begin = Clock::now();
    check(cudaGraphLaunch(graph, stream_), "cudaGraphLaunch");
    wait_for(stream_, world_.comm);
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    for (std::size_t i = 0; i < captured.size(); ++i) {
      const bool failed = round > 0 && !results[i].at("correct");
      if (!failed) results[i] = compare(recv_[i], captured[i], type, round);
      if (!failed && !results[i].at("correct")) results[i]["round"] = round;
    }
  }
  // The communicator cannot be closed while a graph holds its plans.
  check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  json out = json::array();
  for (std::size_t i = 0; i < captured.size(); ++i) {
    results[i].update({{"collective", captured[i].name}, {"type", name_of(type)}, {"bytes", captured[i].bytes()}});
    results[i].update({{"communicator", world_.name}, {"ranks", world_.size}, {"replays", options_.graph}});
    // One graph is timed, not each of its collectives.
    results[i].update(speed(captured[i].bytes(), captured[i].bus_factor, seconds / options_.graph, 0));
    out.push_back(std::move(results[i]));
  }
  return out;
}

}  // namespace clustar::nccl_check
