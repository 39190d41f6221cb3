#include "tests/plugin/collnet/network.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>

namespace clustar::tests {
namespace {

using namespace nccl_abi;

std::mutex log_mutex;
std::string log_text;

void logger(int level, unsigned long, const char*, int, const char* format, ...) {
  std::array<char, 4096> line{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(log_mutex);
  log_text += std::string(level == kLogWarn ? "WARN " : "INFO ") + line.data() + "\n";
}

template <class Table, class Properties, class Part>
class Of final : public CollNet {
 public:
  Of(void* library, const Table* table) : library_(library), table_(*table) {
    devices = table_.devices;
    connect = table_.connect;
    reduce_support = table_.reduceSupport;
    reg_mr = table_.regMr;
    reg_mr_dma_buf = table_.regMrDmaBuf;
    dereg_mr = table_.deregMr;
    flush = table_.iflush;
    test = table_.test;
    close_coll = table_.closeColl;
    close_listen = table_.closeListen;
  }
  ~Of() override { dlclose(library_); }

  int init(void** context, std::uint64_t comm_id) override {
    if constexpr (kHasContext) {
      return table_.init(context, comm_id, logger);
    } else {
      *context = nullptr;
      return table_.init(logger);
    }
  }
  int finalize(void* context) override {
    if constexpr (kHasContext) return table_.finalize(context);
    return kSuccess;
  }
  int listen(void* context, int device, void* handle, void** listen_comm) override {
    if constexpr (kHasContext) {
      return table_.listen(context, device, handle, listen_comm);
    } else {
      return table_.listen(device, handle, listen_comm);
    }
  }
  int properties(int device, CollNetProperties* out) override {
    Properties from{};
    const int result = table_.getProperties(device, &from);
    out->ptr_support = from.ptr_support;
    if constexpr (requires { from.max_coll_bytes; }) out->max_coll_bytes = from.max_coll_bytes;
    return result;
  }
  int all_reduce(void* comm, void* send, void* recv, std::size_t count, int type, int op, void* send_mr, void* recv_mr,
                 void** request) override {
    using Count = std::conditional_t<std::is_same_v<Part, PartV8>, int, std::size_t>;
    return table_.iallreduce(comm, send, recv, static_cast<Count>(count), type, op, send_mr, recv_mr, request);
  }
  int all_gather(void* comm, void* send, void* recv, std::size_t per_rank, std::size_t offset, std::size_t bytes,
                 void* send_mr, void* recv_mr, void** request) override {
    Part part = part_of(recv, bytes, recv_mr);
    return table_.iallgather(comm, send, 1, &part, per_rank, offset, bytes, send_mr, request);
  }
  int reduce_scatter(void* comm, void* send, void* recv, std::size_t per_rank, std::size_t offset, std::size_t bytes,
                     int type, int op, void* send_mr, void* recv_mr, void** request) override {
    Part part = part_of(send, bytes, send_mr);
    return table_.ireducescatter(comm, 1, &part, recv, per_rank, offset, bytes, type, op, recv_mr, request);
  }

 private:
  static constexpr bool kHasContext = requires(Table table) { table.finalize; };
  static Part part_of(void* data, std::size_t bytes, void* mr) {
    return {mr, data, static_cast<decltype(Part::size)>(bytes)};
  }
  void* const library_;
  const Table& table_;
};

template <class Table, class Properties, class Part>
std::unique_ptr<CollNet> open_as(void* library, int version) {
  const void* symbol = dlsym(library, fmt::format("ncclCollNetPlugin_v{}", version).c_str());
  EXPECT_NE(symbol, nullptr);
  if (symbol == nullptr) return nullptr;
  return std::make_unique<Of<Table, Properties, Part>>(library, static_cast<const Table*>(symbol));
}

}  // namespace

std::unique_ptr<CollNet> CollNet::open(int version, const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  if (library == nullptr) return nullptr;
  switch (version) {
    case 8: return open_as<CollNetV8, PropertiesV8, PartV8>(library, 8);
    case 9:
    case 10: return open_as<CollNetV9, PropertiesV9, PartV9>(library, version);
    case 11: return open_as<CollNetV11, PropertiesV11, PartV9>(library, 11);
    default: return open_as<CollNetV12, PropertiesV12, PartV9>(library, 12);
  }
}

std::string collnet_log() {
  const std::lock_guard lock(log_mutex);
  return std::exchange(log_text, {});
}

void* CollRank::reg(void* data, std::size_t size, int type) {
  void* mr = nullptr;
  EXPECT_EQ(net.reg_mr(comm, data, size, type, &mr), kSuccess);
  registered.push_back(mr);
  return mr;
}

int CollRank::wait(void* request) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int done = 0, size = 0;
  while (done == 0) {
    const int result = net.test(request, &done, &size);
    if (result != kSuccess) return result;
    if (std::chrono::steady_clock::now() > until) return -1;
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return kSuccess;
}

void CollRank::dereg_all() {
  for (void* mr : registered) EXPECT_EQ(net.dereg_mr(comm, mr), kSuccess);
  registered.clear();
}

void CollRank::leave() {
  if (comm == nullptr) return;
  dereg_all();
  EXPECT_EQ(net.close_coll(comm), kSuccess);
  comm = nullptr;
}

std::vector<int> connect_all(CollNet& net, std::vector<CollRank>& ranks, const std::vector<int>& who) {
  std::vector<std::array<std::byte, kHandleBytes>> handles(ranks.size());
  std::vector<void*> listeners(ranks.size(), nullptr);
  std::vector<int> results(ranks.size(), kSuccess);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(net.listen(ranks[r].context, 0, handles[r].data(), &listeners[r]), kSuccess);
  }
  std::vector<std::thread> threads;
  for (const int r : who) {
    const auto at = static_cast<std::size_t>(r);
    threads.emplace_back([&, at, r] {
      std::vector<void*> pointers;
      for (auto& handle : handles) pointers.push_back(handle.data());
      results[at] = net.connect(pointers.data(), static_cast<int>(ranks.size()), r, listeners[at], &ranks[at].comm);
      if (results[at] == kSuccess) {
        EXPECT_EQ(net.close_listen(listeners[at]), kSuccess);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void with_coll_ranks(CollNet& net, int ranks, const std::function<void(CollRank&)>& body) {
  std::vector<CollRank> all;
  std::vector<int> who;
  for (int r = 0; r < ranks; ++r) {
    all.push_back({net, r, ranks});
    who.push_back(r);
    ASSERT_EQ(net.init(&all.back().context, 42), kSuccess);
  }
  int devices = 0;
  ASSERT_EQ(net.devices(&devices), kSuccess);
  ASSERT_EQ(devices, 1);
  for (const int result : connect_all(net, all, who)) ASSERT_EQ(result, kSuccess) << collnet_log();
  std::vector<std::thread> threads;
  for (CollRank& one : all) {
    threads.emplace_back([&] {
      body(one);
      one.leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (CollRank& one : all) EXPECT_EQ(net.finalize(one.context), kSuccess);
}

std::size_t element_size(int type) {
  constexpr std::array<std::size_t, 10> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<std::size_t>(type)];
}

void encode(int type, int number, std::byte* at) {
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  const auto bits = [](float value) {
    std::uint32_t all = 0;
    std::memcpy(&all, &value, sizeof all);
    return all;
  };
  switch (type) {
    case kInt8:
    case kUint8: return put(static_cast<std::uint8_t>(number));
    case kInt32:
    case kUint32: return put(static_cast<std::uint32_t>(number));
    case kInt64:
    case kUint64: return put(static_cast<std::uint64_t>(number));
    case kFloat32: return put(static_cast<float>(number));
    case kFloat64: return put(static_cast<double>(number));
    case kBfloat16: return put(static_cast<std::uint16_t>(bits(static_cast<float>(number)) >> 16));
    default: break;
  }
  // f16: exponent of 5 bits around 15, mantissa of 10.
  const std::uint32_t wide = bits(static_cast<float>(number));
  put(static_cast<std::uint16_t>(number == 0 ? 0 : (((wide >> 23) - 127 + 15) << 10) | ((wide >> 13) & 0x3ff)));
}

std::vector<std::byte> values(int type, int rank, std::size_t begin, std::size_t count) {
  std::vector<std::byte> all(count * element_size(type));
  for (std::size_t i = 0; i < count; ++i) encode(type, value_of(rank, begin + i), &all[i * element_size(type)]);
  return all;
}

std::vector<std::byte> reduced(int type, int op, int ranks, std::size_t begin, std::size_t count) {
  std::vector<std::byte> all(count * element_size(type));
  for (std::size_t i = 0; i < count; ++i) {
    int number = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int value = value_of(rank, begin + i);
      number = op == kMax ? std::max(number, value) : number + value;
    }
    encode(type, number, &all[i * element_size(type)]);
  }
  return all;
}

}  // namespace clustar::tests
