// nccl-check's training steps where there is no GPU: bench/proxy in NCCL's place, the same plugin, options and files.
// What it leaves is judged by the same code, so that only NCCL itself stays untried.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/communicator.h"
#include "bench/proxy/net_plugin.h"
#include "bench/trainer/digest.h"
#include "tests/gpu/lossy_replica.h"
#include "tests/gpu/plugin_ledger.h"

namespace {

namespace proxy = clustar::bench::proxy;
using namespace clustar::nccl_check;
using Clock = std::chrono::steady_clock;

constexpr int kChannels = 2;  // as NCCL_MIN_NCHANNELS of the cases

template <class T>
T take(clustar::Result<T> result, const char* what) {
  if (!result) throw std::runtime_error(std::string(what) + ": " + result.error().message);
  return std::move(*result);
}

// Rank 0 tells the others by a file where it listens, as nccl-check tells NCCL's unique id.
std::string agree_on_root(int rank, const std::string& file, Clock::time_point deadline) {
  if (rank == 0) {
    const std::string root = take(proxy::Bootstrap::pick_loopback_root(), "a port");
    const std::string draft = file + ".part";
    std::ofstream(draft) << root << "\n";
    if (std::rename(draft.c_str(), file.c_str()) != 0) throw std::runtime_error("cannot write --idfile '" + file + "'");
    return root;
  }
  std::string root;
  while (!std::getline(std::ifstream(file), root)) {
    if (Clock::now() > deadline) throw std::runtime_error("rank 0 wrote no --idfile '" + file + "'");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return root;
}

struct Options {
  int rank = 0, size = 0, steps = 0, deadline_s = 0;
  std::size_t bytes = 0;
  std::string id_file, json;
};

Options parse(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  return {std::stoi(given.at("--rank")),
          std::stoi(given.at("--size")),
          std::stoi(given.at("--train")),
          std::stoi(given.at("--deadline")),
          std::stoul(given.at("--max")),
          given.at("--idfile"),
          given.at("--json")};
}

// The lines of NCCL's log from which the check takes who carried the data.
void print_log(const proxy::NetPlugin& plugin, const proxy::Communicator& communicator) {
  std::printf("NCCL INFO NET/Plugin: Loaded net plugin %s (v%d)\n", plugin.name(), plugin.version());
  std::printf("NCCL INFO Using network %s\n", plugin.name());
  if (const int version = communicator.profiler_version(); version > 0) {
    std::printf("NCCL INFO PROFILER/Plugin: Loaded %s (v%d)\n", plugin.name(), version);
  }
  if (const int version = communicator.tuner_version(); version > 0) {
    std::printf("NCCL INFO TUNER/Plugin: Using %s (v%d)\n", plugin.name(), version);
  }
}

void run(const Options& options) {
  alarm(static_cast<unsigned>(options.deadline_s));
  const auto deadline = Clock::now() + std::chrono::seconds(options.deadline_s);
  const std::string root = agree_on_root(options.rank, options.id_file, deadline);
  const auto bootstrap =
      take(proxy::Bootstrap::join({.rank = options.rank, .size = options.size, .root = root}), "bootstrap");
  const auto plugin = take(proxy::NetPlugin::open(plugin_path()), "plugin");
  proxy::CommunicatorOptions how;
  how.channels = kChannels;
  how.comm_id = clustar::bench::trainer::digest(std::as_bytes(std::span(root)));
  const auto communicator = take(proxy::Communicator::create(*plugin, *bootstrap, how), "communicator");
  print_log(*plugin, *communicator);

  const auto ranks = static_cast<std::size_t>(options.size);
  LossyReplica replica(options.bytes / sizeof(float) / ranks * ranks, options.rank, options.size);
  nlohmann::json training = train(replica, options.steps, [&](std::span<const float> gradient, std::span<float> sums) {
    std::copy(gradient.begin(), gradient.end(), sums.begin());
    const auto pending =
        communicator->all_reduce(sums.data(), sums.size(), proxy::DataType::kFloat32, proxy::ReduceOp::kSum);
    take(pending->wait(), "all-reduce");
  });
  training["ledger"] = plugin_ledger(plugin_path());
  nlohmann::json row = training_row(training, replica.elements() * sizeof(float), options.size);
  row.update({{"time_us", 0}, {"algbw_gbytes_per_s", 0}, {"busbw_gbytes_per_s", 0}});  // it measures no time
  if (const auto ok = communicator->close(); !ok) throw std::runtime_error("close: " + ok.error().message);
  const nlohmann::json results = nlohmann::json::array({std::move(row)});
  std::ofstream(options.json) << nlohmann::json{{"rank", options.rank}, {"size", options.size}, {"results", results}};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "proxy-check: %s\n", error.what());
    return 1;
  }
}
