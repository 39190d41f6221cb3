// Fixtures: what a driver answers, as text.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/gdr/fake_libcuda/state.h"

namespace clustar::tests {
namespace {

struct NamedResult {
  CUresult result;
  const char* name;
};
#define NAMED(result) \
  { result, #result }
constexpr NamedResult kResults[] = {
    NAMED(CUDA_SUCCESS),
    NAMED(CUDA_ERROR_INVALID_VALUE),
    NAMED(CUDA_ERROR_OUT_OF_MEMORY),
    NAMED(CUDA_ERROR_NOT_INITIALIZED),
    NAMED(CUDA_ERROR_DEINITIALIZED),
    NAMED(CUDA_ERROR_NO_DEVICE),
    NAMED(CUDA_ERROR_INVALID_DEVICE),
    NAMED(CUDA_ERROR_INVALID_CONTEXT),
    NAMED(CUDA_ERROR_INVALID_HANDLE),
    NAMED(CUDA_ERROR_NOT_READY),
    NAMED(CUDA_ERROR_ILLEGAL_ADDRESS),
    NAMED(CUDA_ERROR_LAUNCH_FAILED),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
    NAMED(CUDA_ERROR_OPERATING_SYSTEM),
    NAMED(CUDA_ERROR_NOT_PERMITTED),
    NAMED(CUDA_ERROR_NOT_SUPPORTED),
    NAMED(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
    NAMED(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE),
    NAMED(CUDA_ERROR_UNKNOWN),
};
#undef NAMED

const std::map<std::string, int> kDeviceAttributes = {
    {"major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {"minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {"gpu_direct", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
    {"flush", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS},
    {"ordering", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING},
    {"dma_buf", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
    {"vmm", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    {"vmm_gpu_direct", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
    {"pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
};
const std::map<std::string, int> kMemoryAttributes = {
    {"legacy", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
    {"gpu_direct", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
    {"managed", CU_POINTER_ATTRIBUTE_IS_MANAGED},
};

// "key=value" of a line's rest.
std::map<std::string, std::string> options_of(std::istringstream& words) {
  std::map<std::string, std::string> options;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    options[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return options;
}

std::string add_memory(FakeState& state, std::istringstream& words) {
  FakeMemory memory;
  if (!(words >> memory.name >> memory.size) || memory.size == 0) return "memory NAME BYTES [KEY=VALUE...]";
  for (const auto& [key, value] : options_of(words)) {
    if (key == "type") {
      memory.type = value;
    } else if (key == "device") {
      memory.device = std::stoi(value);
    } else if (key == "piece") {
      memory.piece = std::stoul(value);
    } else if (key == "context" && value == "own") {
      memory.context = &state.own_contexts.emplace_back(CUctx_st{memory.device, false});
    } else if (const auto known = kMemoryAttributes.find(key); known != kMemoryAttributes.end()) {
      memory.attributes[known->second] = std::stoi(value);
    } else {
      return "memory knows no " + key;
    }
  }
  void* mapped = mmap(nullptr, memory.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return "no memory";
  memory.base = static_cast<std::byte*>(mapped);
  state.memories.push_back(memory);
  return {};
}

std::string add_device(FakeState& state, std::istringstream& words) {
  FakeDevice device;
  if (!(words >> device.address)) return "device ADDRESS [KEY=VALUE...]";
  device.primary.device = static_cast<int>(state.devices.size());
  for (const auto& [key, value] : options_of(words)) {
    const auto known = kDeviceAttributes.find(key);
    if (key == "active") {
      device.active = value == "1";
    } else if (known == kDeviceAttributes.end()) {
      return "device knows no " + key;
    } else {
      device.attributes[known->second] = std::stoi(value);
    }
  }
  state.devices.push_back(device);
  return {};
}

std::string read_line(FakeState& state, const std::string& line) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string key;
  if (!(words >> key)) return {};
  std::string rest;
  if (key == "device") return add_device(state, words);
  if (key == "memory") return add_memory(state, words);
  if (key == "driver") return words >> state.version ? "" : "driver VERSION, 12080 for 12.8";
  if (key == "latency") return words >> state.latency ? "" : "latency QUERIES";
  if (key == "full") {
    words >> rest;
    state.when_full = result_named(rest);
    return name_of_result(state.when_full) == rest ? "" : "full RESULT: no result is named " + rest;
  }
  if (key == "answer") {
    std::string function;
    words >> function;
    std::getline(words, rest);
    return add_answer(state, function, rest);
  }
  return "no line begins with " + key;
}

}  // namespace

CUresult result_named(const std::string& name) {
  for (const NamedResult& one : kResults) {
    if (name == one.name) return one.result;
  }
  return CUDA_ERROR_UNKNOWN;
}

const char* name_of_result(CUresult result) {
  for (const NamedResult& one : kResults) {
    if (result == one.result) return one.name;
  }
  return nullptr;
}

std::string add_answer(FakeState& state, const std::string& function, const std::string& rest) {
  FakeAnswer answer{.function = function, .memory = {}, .flags = -1, .results = {}};
  std::istringstream words(rest);
  for (std::string word; words >> word;) {
    if (word.rfind("flags=", 0) == 0) {
      answer.flags = std::stoll(word.substr(6));
    } else if (word.rfind("memory=", 0) == 0) {
      answer.memory = word.substr(7);
    } else if (const CUresult result = result_named(word); name_of_result(result) == word) {
      answer.results.push_back(result);
    } else {
      return "no result is named " + word;
    }
  }
  if (answer.results.empty()) return "answer FUNCTION [flags=N] [memory=NAME] RESULT...";
  // The newest first: a test may override its fixture.
  state.answers.push_front(answer);
  return {};
}

std::string load_fixture(FakeState& state, const std::string& path) {
  // Of streams that were left behind: their copies' memory goes now.
  for (CUstream stream : state.streams) stream->queue.clear();
  for (const FakeMemory& memory : state.memories) munmap(memory.base, memory.size);
  state.memories.clear();
  state.devices.clear();
  state.own_contexts.clear();
  state.answers.clear();
  state.calls.clear();
  state.misuse.clear();
  state.held = false;
  state.capturing = false;
  state.version = 12080;
  state.latency = 2;
  state.when_full = CUDA_ERROR_OPERATING_SYSTEM;
  state.copies_fail = state.dead = CUDA_SUCCESS;
  state.loaded = true;
  std::ifstream file(path);
  if (!file) return path + ": cannot be read";
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (const std::string problem = read_line(state, line); !problem.empty()) {
      return path + ":" + std::to_string(number) + ": " + problem;
    }
  }
  return {};
}

}  // namespace clustar::tests
