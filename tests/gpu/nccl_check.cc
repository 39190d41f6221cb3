// nccl-check: one rank of a group that runs real NCCL collectives on a GPU and compares every result bit for bit with
// what the host computes. scripts/gpu-check starts the ranks; `nccl-check --help` lists the options.
// Every wait is bounded by --deadline; past it the process says where it stood and ends with status 1.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSkip = 77;
constexpr std::size_t kGuardBytes = 256;  // after each receive buffer; nobody may write there
constexpr std::uint8_t kPoison = 0xa5;    // what a receive buffer holds before each checked collective
constexpr std::size_t kElementBytes = 4;  // int32 and float32
constexpr const char* kUsage =
    "usage: nccl-check --rank R --size N --idfile PATH [--min BYTES] [--max BYTES] [--deadline SECONDS] [--json FILE]\n"
    "One rank of all-reduce, reduce-scatter and all-gather over NCCL, checked bit for bit, on GPU 0.\n"
    "Rank 0 writes NCCL's unique id to --idfile, the others read it there. Sizes go from --min (8) to --max "
    "(67108864)\n"
    "by factors of 8. Exit status: 0 all correct, 1 failed, 2 wrong usage, 77 no GPU here.\n";

struct Options {
  int rank = -1;
  int size = 0;
  std::string id_file;
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 64u << 20;
  int deadline_s = 120;
  std::string json;
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Clock::time_point g_deadline;
std::string g_where = "starting";  // for the message when time is up

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(result));
}

void check_time() {
  if (Clock::now() < g_deadline) return;
  // No teardown: it may wait for the very thing that is stuck.
  std::fprintf(stderr, "nccl-check: time is up while %s\n", g_where.c_str());
  std::fflush(stderr);
  _exit(1);
}

// Waits until the non-blocking communicator has finished what it was asked.
void settle(ncclResult_t result, ncclComm_t comm, const char* call) {
  while (result == ncclInProgress) {
    check_time();
    sched_yield();
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) break;
  }
  if (result != ncclSuccess) {
    throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(comm));
  }
}

void wait_for(cudaStream_t stream, ncclComm_t comm) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, "cudaStreamQuery");
    ncclResult_t result = ncclSuccess;
    ncclCommGetAsyncError(comm, &result);
    if (result != ncclInProgress) settle(result, comm, "asynchronous error");
    check_time();
    sched_yield();
  }
}

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
  g_where = "waiting for rank 0's unique id in " + options.id_file;
  for (;;) {
    std::ifstream in(options.id_file, std::ios::binary);
    if (in.read(id.internal, sizeof id.internal)) return id;
    check_time();
    usleep(20'000);
  }
}

// Small integers: every sum over the ranks is exact in float32 too, in whatever order NCCL adds.
std::int32_t value(std::size_t i, int rank) {
  return static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(rank) * 131 + 3) % 2039) - 1019;
}
std::int32_t sum(std::size_t i, int size) {
  std::int32_t total = 0;
  for (int rank = 0; rank < size; ++rank) total += value(i, rank);
  return total;
}
std::uint32_t bits(std::int32_t number, ncclDataType_t type) {
  if (type == ncclInt32) return static_cast<std::uint32_t>(number);
  const auto real = static_cast<float>(number);
  std::uint32_t out;
  std::memcpy(&out, &real, sizeof out);
  return out;
}

struct Collective {
  const char* name;
  double bus_factor;  // of algorithm bandwidth, as nccl-tests defines it
  std::size_t send_count, recv_count;
  std::function<ncclResult_t(const void*, void*, ncclDataType_t, ncclComm_t, cudaStream_t)> start;
  std::function<std::int32_t(std::size_t)> expected;
};

// `bytes` is the larger of the two buffers, as nccl-tests counts.
std::vector<Collective> collectives(std::size_t bytes, int rank, int size) {
  const auto n = static_cast<std::size_t>(size);
  const std::size_t total = std::max(bytes / kElementBytes / n, std::size_t{1}) * n;
  const std::size_t part = total / n;
  const double share = static_cast<double>(size - 1) / size;
  return {
      {"all_reduce", 2 * share, total, total,
       [=](const void* in, void* out, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllReduce(in, out, total, type, ncclSum, comm, stream);
       },
       [=](std::size_t i) { return sum(i, size); }},
      {"reduce_scatter", share, total, part,
       [=](const void* in, void* out, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
         return ncclReduceScatter(in, out, part, type, ncclSum, comm, stream);
       },
       [=](std::size_t i) { return sum(static_cast<std::size_t>(rank) * part + i, size); }},
      {"all_gather", share, part, total,
       [=](const void* in, void* out, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllGather(in, out, part, type, comm, stream);
       },
       [=](std::size_t i) { return value(i % part, static_cast<int>(i / part)); }},
  };
}

class Rank {
 public:
  explicit Rank(const Options& options) : options_(options) {
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    // One rank's part may be rounded up to an element.
    const std::size_t room = std::max(options.max_bytes, kElementBytes * static_cast<std::size_t>(options.size));
    check(cudaMalloc(&send_, room), "cudaMalloc");
    check(cudaMalloc(&recv_, room + kGuardBytes), "cudaMalloc");
    const ncclUniqueId id = exchange_id(options);
    g_where = "joining the communicator";
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto started = ncclCommInitRankConfig(&comm_, options.size, id, options.rank, &config);
    settle(started, comm_, "ncclCommInitRankConfig");
  }
  // No destructor: a communicator that failed is not torn down, the process ends.

  nlohmann::json run() {
    nlohmann::json results = nlohmann::json::array();
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = options_.min_bytes; bytes < options_.max_bytes; bytes *= 8) sizes.push_back(bytes);
    sizes.push_back(options_.max_bytes);
    for (const std::size_t bytes : sizes) {
      for (const Collective& collective : collectives(bytes, options_.rank, options_.size)) {
        for (const ncclDataType_t type : {ncclInt32, ncclFloat32}) results.push_back(measure(collective, type));
      }
    }
    return results;
  }

  void close() {
    g_where = "closing the communicator";
    settle(ncclCommFinalize(comm_), comm_, "ncclCommFinalize");
    if (ncclCommDestroy(comm_) != ncclSuccess) throw std::runtime_error("ncclCommDestroy failed");
    check(cudaFree(send_), "cudaFree");
    check(cudaFree(recv_), "cudaFree");
    check(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

 private:
  void start(const Collective& collective, ncclDataType_t type) {
    settle(collective.start(send_, recv_, type, comm_, stream_), comm_, collective.name);
  }

  nlohmann::json measure(const Collective& collective, ncclDataType_t type) {
    const std::size_t bytes = std::max(collective.send_count, collective.recv_count) * kElementBytes;
    const char* const type_name = type == ncclInt32 ? "int32" : "float32";
    g_where = std::string(collective.name) + " " + type_name + " of " + std::to_string(bytes) + " bytes";

    std::vector<std::uint32_t> host(collective.send_count);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = bits(value(i, options_.rank), type);
    check(cudaMemcpy(send_, host.data(), host.size() * kElementBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemset(recv_, kPoison, collective.recv_count * kElementBytes + kGuardBytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    start(collective, type);
    wait_for(stream_, comm_);
    nlohmann::json result = compare(collective, type);
    result["collective"] = collective.name;
    result["type"] = type_name;
    result["bytes"] = bytes;

    const int iterations = bytes <= (64u << 10) ? 10 : 4;
    const auto begin = Clock::now();
    for (int i = 0; i < iterations; ++i) start(collective, type);
    wait_for(stream_, comm_);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / iterations;
    const double gbytes_per_s = static_cast<double>(bytes) / seconds / 1e9;
    result["iterations"] = iterations;
    result["time_us"] = seconds * 1e6;
    result["algbw_gbytes_per_s"] = gbytes_per_s;
    result["busbw_gbytes_per_s"] = gbytes_per_s * collective.bus_factor;
    return result;
  }

  nlohmann::json compare(const Collective& collective, ncclDataType_t type) {
    const std::size_t payload = collective.recv_count * kElementBytes;
    std::vector<std::uint8_t> got(payload + kGuardBytes);
    check(cudaMemcpy(got.data(), recv_, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::size_t wrong = 0;
    std::string first;
    for (std::size_t i = 0; i < collective.recv_count; ++i) {
      std::uint32_t word;
      std::memcpy(&word, got.data() + i * kElementBytes, sizeof word);
      const std::uint32_t wanted = bits(collective.expected(i), type);
      if (word != wanted && wrong++ == 0) {
        char text[96];
        std::snprintf(text, sizeof text, "element %zu is 0x%08x, expected 0x%08x", i, word, wanted);
        first = text;
      }
    }
    const auto guard = got.begin() + static_cast<std::ptrdiff_t>(payload);
    if (!std::all_of(guard, got.end(), [](std::uint8_t byte) { return byte == kPoison; })) {
      ++wrong;
      first += (first.empty() ? "" : "; ") + std::string("bytes after the receive buffer were written");
    }
    nlohmann::json result = {{"correct", wrong == 0}, {"wrong_elements", wrong}};
    if (wrong != 0) result["first_wrong"] = first;
    return result;
  }

  const Options& options_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
};

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"--rank", [&](const std::string& text) { options.rank = std::stoi(text); }},
      {"--size", [&](const std::string& text) { options.size = std::stoi(text); }},
      {"--idfile", [&](const std::string& text) { options.id_file = text; }},
      {"--min", [&](const std::string& text) { options.min_bytes = std::stoull(text); }},
      {"--max", [&](const std::string& text) { options.max_bytes = std::stoull(text); }},
      {"--deadline", [&](const std::string& text) { options.deadline_s = std::stoi(text); }},
      {"--json", [&](const std::string& text) { options.json = text; }},
  };
  for (int i = 1; i < argc; i += 2) {
    const auto option = known.find(argv[i]);
    if (option == known.end()) throw UsageError(std::string("unknown option '") + argv[i] + "'");
    if (i + 1 == argc) throw UsageError(std::string(argv[i]) + " needs a value");
    try {
      option->second(argv[i + 1]);
    } catch (const std::logic_error&) {
      throw UsageError(std::string(argv[i]) + ": '" + argv[i + 1] + "' is not a number");
    }
  }
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw UsageError("--rank and --size are needed, 0 <= rank < size");
  }
  if (options.id_file.empty()) throw UsageError("--idfile is needed: a path that all ranks see");
  if (options.min_bytes < 1 || options.max_bytes < options.min_bytes || options.max_bytes > (1ull << 34)) {
    throw UsageError("--min must be at least 1, --max at least --min and at most 16 GiB");
  }
  if (options.deadline_s < 1) throw UsageError("--deadline must be at least 1 second");
  return options;
}

int run(const Options& options) {
  int devices = 0;
  if (const auto result = cudaGetDeviceCount(&devices); result != cudaSuccess || devices == 0) {
    std::printf("SKIP: no CUDA device here: %s\n", cudaGetErrorString(result));
    return kSkip;
  }
  g_deadline = Clock::now() + std::chrono::seconds(options.deadline_s);
  int nccl_version = 0, driver_version = 0;
  ncclGetVersion(&nccl_version);
  check(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");

  Rank rank(options);
  const nlohmann::json results = rank.run();
  rank.close();

  const nlohmann::json document = {{"rank", options.rank},         {"size", options.size},
                                   {"nccl_version", nccl_version}, {"cuda_driver_version", driver_version},
                                   {"gpu", properties.name},       {"results", results}};
  if (!options.json.empty()) {
    std::ofstream out(options.json);
    out << document.dump(1) << "\n";
    if (!out.flush()) throw std::runtime_error("cannot write --json '" + options.json + "'");
  }
  const auto wrong = std::count_if(results.begin(), results.end(), [](const auto& r) { return !r.at("correct"); });
  std::printf("rank %d: %zu collectives, %td wrong\n", options.rank, results.size(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    return run(parse(argc, argv));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "nccl-check: %s\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl-check: while %s: %s\n", g_where.c_str(), error.what());
    std::fflush(nullptr);
    _exit(1);  // NCCL's threads may still wait for what failed
  }
}
