// GPU memory as NCCL registers, flushes and sends it (NCCL v2.28.9 src/transport/net.cc), with a transport that takes
// it, one that takes CUDA pointers only, and one that takes host memory only. "GPU memory" is host memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <utility>

#include "tests/plugin/installation.h"
#include "tests/plugin/plugin_under_test.h"

namespace clustar::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kBytes = 1 << 20;

// Memory with a descriptor, as a dma-buf has.
class SharedMemory {
 public:
  SharedMemory() : fd_(memfd_create("gpu", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, kBytes), 0);
    data_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~SharedMemory() {
    munmap(data_, kBytes);
    close_descriptor();
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  int fd() const { return fd_; }
  void close_descriptor() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  void* data_;
};

// The plugin over the test module, with one connection to itself.
class Opened {
 public:
  Opened(const char* kind, int version) : environment_(variables(kind)) {
    fs::copy_file(CLUSTAR_TEST_MODULE, installation_.module("verbs"));
    plugin_ = open_plugin(version, installation_.plugin());
    EXPECT_EQ(plugin_->init(1, -1, &context_), nccl_abi::kSuccess);
    connection_ = connect_to_self(*plugin_, context_);
  }
  ~Opened() {
    if (context_ != nullptr) end();
  }
  NetPlugin& plugin() { return *plugin_; }
  const PluginConnection& connection() const { return connection_; }
  int ptr_support() {
    bench::proxy::NetProperties properties;
    EXPECT_EQ(plugin_->get_properties(0, &properties), nccl_abi::kSuccess);
    return properties.ptr_support;
  }
  std::string log() { return joined_log(*plugin_); }
  // All that was logged since; from v11 on to the transport's last words, which older tables have at the unloading.
  std::string end() {
    tests::close(*plugin_, connection_);
    EXPECT_EQ(plugin_->finalize(std::exchange(context_, nullptr)), nccl_abi::kSuccess);
    return log();
  }

 private:
  static Variables variables(const char* kind) {
    if (kind == nullptr) return {};
    return {{"CLUSTAR_TRANSPORT", "verbs"}, {"CLUSTAR_IB_HCA", kind}};
  }

  Environment environment_;
  Installation installation_;
  std::unique_ptr<NetPlugin> plugin_;
  void* context_ = nullptr;
  PluginConnection connection_;
};

// One message from one registered address to another.
void send_between(Opened& opened, void* from, void* from_mr, void* to, void* to_mr, std::size_t size) {
  NetPlugin& plugin = opened.plugin();
  void* recv = nullptr;
  void* send = nullptr;
  int tag = 1;
  ASSERT_EQ(plugin.irecv(opened.connection().recv, 1, &to, &size, &tag, &to_mr, nullptr, &recv), nccl_abi::kSuccess);
  ASSERT_NE(recv, nullptr);
  ASSERT_TRUE(poll_until([&] {
    EXPECT_EQ(plugin.isend(opened.connection().send, from, size, tag, from_mr, nullptr, &send), nccl_abi::kSuccess);
    return send != nullptr;
  }));
  std::array<int, 2> done{};
  ASSERT_TRUE(poll_until([&] {
    if (done[0] == 0) {
      EXPECT_EQ(plugin.test(send, &done[0], nullptr), nccl_abi::kSuccess);
    }
    if (done[1] == 0) {
      EXPECT_EQ(plugin.test(recv, &done[1], nullptr), nccl_abi::kSuccess);
    }
    return done[0] + done[1] == 2;
  }));
}

class GpuMemory : public ::testing::TestWithParam<int> {};

TEST_P(GpuMemory, PtrSupportAndTheBannerSayWhatTheDeviceOffers) {
  {
    Opened all("device-memory", GetParam());
    EXPECT_EQ(all.ptr_support(), nccl_abi::kPtrHost | nccl_abi::kPtrCuda | nccl_abi::kPtrDmaBuf);
    EXPECT_THAT(all.log(), HasSubstr("GPUDirect RDMA: lo: by the test module"));
  }
  {
    Opened some("cuda-pointers", GetParam());
    EXPECT_EQ(some.ptr_support(), nccl_abi::kPtrHost | nccl_abi::kPtrCuda);
  }
  Opened none(nullptr, GetParam());
  EXPECT_EQ(none.ptr_support(), nccl_abi::kPtrHost);
}

TEST_P(GpuMemory, EachKindIsRegisteredAsItselfAndCarriesMessages) {
  Opened opened("device-memory", GetParam());
  NetPlugin& plugin = opened.plugin();
  SharedMemory from;
  SharedMemory to;
  void* from_mr = nullptr;
  void* to_mr = nullptr;
  ASSERT_EQ(plugin.reg_mr(opened.connection().send, from.data(), kBytes, nccl_abi::kPtrCuda, &from_mr),
            nccl_abi::kSuccess);
  // The upper half by its offset, as NCCL may register a part of an allocation.
  ASSERT_EQ(plugin.reg_mr_dma_buf(opened.connection().recv, to.data() + kBytes / 2, kBytes / 2, nccl_abi::kPtrCuda,
                                  kBytes / 2, to.fd(), &to_mr),
            nccl_abi::kSuccess);
  to.close_descriptor();  // as NCCL does
  EXPECT_THAT(opened.log(), AllOf(HasSubstr("registered cuda: 1048576 bytes from offset 0"),
                                  HasSubstr("registered dma-buf: 524288 bytes from offset 524288, descriptor open")));
  from.data()[77] = 0x42;
  send_between(opened, from.data(), from_mr, to.data() + kBytes / 2, to_mr, 1000);
  EXPECT_EQ(to.data()[kBytes / 2 + 77], 0x42);
  EXPECT_EQ(plugin.dereg_mr(opened.connection().send, from_mr), nccl_abi::kSuccess);
  EXPECT_EQ(plugin.dereg_mr(opened.connection().recv, to_mr), nccl_abi::kSuccess);
  const std::string last = opened.end();
  if (GetParam() >= 11) {
    EXPECT_THAT(last, HasSubstr("2 registrations looked up, 0 held"));
  }
}

TEST_P(GpuMemory, AKindThatIsNotOfferedIsAnErrorThatSaysWhatIsAndWhy) {
  SharedMemory memory;
  void* mr = &memory;
  {
    Opened opened("cuda-pointers", GetParam());
    EXPECT_EQ(opened.plugin().reg_mr_dma_buf(opened.connection().send, memory.data(), kBytes, nccl_abi::kPtrCuda, 0,
                                             memory.fd(), &mr),
              nccl_abi::kInvalidArgument);
    EXPECT_EQ(mr, nullptr);
    EXPECT_THAT(opened.log(), HasSubstr("regMrDmaBuf: dma-buf memory is not offered by lo; what its ptrSupport names "
                                        "is: NCCL_PTR_HOST, NCCL_PTR_CUDA (GPUDirect RDMA: no dma-bufs here)"));
  }
  Opened opened(nullptr, GetParam());
  EXPECT_EQ(opened.plugin().reg_mr(opened.connection().recv, memory.data(), kBytes, nccl_abi::kPtrCuda, &mr),
            nccl_abi::kInvalidArgument);
  EXPECT_EQ(mr, nullptr);
  EXPECT_THAT(opened.log(),
              HasSubstr("regMr: cuda memory is not offered by lo; what its ptrSupport names is: NCCL_PTR_HOST"));
}

TEST_P(GpuMemory, WhatNoMemoryCanBeIsAnErrorAndNothingIsRegistered) {
  Opened opened("device-memory", GetParam());
  NetPlugin& plugin = opened.plugin();
  SharedMemory memory;
  void* const comm = opened.connection().send;
  void* mr = nullptr;
  opened.log();
  const auto dma_buf = [&](void* data, std::size_t size, int type, std::uint64_t offset, int fd) {
    EXPECT_EQ(plugin.reg_mr_dma_buf(comm, data, size, type, offset, fd, &mr), nccl_abi::kInvalidArgument);
    EXPECT_EQ(mr, nullptr);
    return opened.log();
  };
  const int cuda = nccl_abi::kPtrCuda;
  EXPECT_THAT(dma_buf(memory.data(), kBytes, cuda, 0, -1), HasSubstr("descriptor -1 is not open"));
  const int closed = dup(memory.fd());
  ::close(closed);
  EXPECT_THAT(dma_buf(memory.data(), kBytes, cuda, 0, closed), HasSubstr("is not open (Bad file descriptor)"));
  EXPECT_THAT(dma_buf(memory.data(), kBytes, nccl_abi::kPtrHost, 0, memory.fd()), HasSubstr("NCCL_PTR_CUDA (2)"));
  EXPECT_THAT(dma_buf(memory.data(), kBytes, cuda, std::numeric_limits<std::uint64_t>::max() - 5, memory.fd()),
              HasSubstr("end behind 2^64"));
  EXPECT_THAT(dma_buf(memory.data(), std::numeric_limits<std::size_t>::max(), cuda, 0, memory.fd()),
              HasSubstr("end behind all addresses"));
  EXPECT_THAT(dma_buf(nullptr, kBytes, cuda, 0, memory.fd()), HasSubstr("null pointer"));
  EXPECT_EQ(plugin.reg_mr(comm, nullptr, kBytes, cuda, &mr), nccl_abi::kInvalidArgument);
  EXPECT_EQ(plugin.reg_mr(comm, memory.data(), kBytes, nccl_abi::kPtrDmaBuf, &mr), nccl_abi::kInvalidArgument);
  EXPECT_THAT(opened.log(), HasSubstr("regMrDmaBuf, with its descriptor"));
  EXPECT_EQ(plugin.reg_mr(comm, memory.data(), kBytes, 8, &mr), nccl_abi::kInvalidArgument);
  EXPECT_THAT(opened.log(), HasSubstr("memory of type 8; NCCL_PTR_HOST (1) and NCCL_PTR_CUDA (2) are allowed"));
  EXPECT_EQ(plugin.reg_mr_dma_buf(nullptr, memory.data(), kBytes, cuda, 0, memory.fd(), &mr),
            nccl_abi::kInvalidArgument);
  const std::string last = opened.end();
  if (GetParam() >= 11) {
    EXPECT_THAT(last, HasSubstr("0 registrations looked up"));
  }
}

INSTANTIATE_TEST_SUITE_P(Abi, GpuMemory, ::testing::Values(8, 9, 10, 11, 12),
                         [](const auto& suite) { return "v" + std::to_string(suite.param); });

TEST(GpuMemoryFlush, AsksForWhatCameIntoDeviceMemoryAndNothingElse) {
  Opened opened("device-memory", 11);
  NetPlugin& plugin = opened.plugin();
  void* const comm = opened.connection().recv;
  SharedMemory device;
  SharedMemory host;
  void* device_mr = nullptr;
  void* host_mr = nullptr;
  ASSERT_EQ(plugin.reg_mr(comm, device.data(), kBytes, nccl_abi::kPtrCuda, &device_mr), nccl_abi::kSuccess);
  ASSERT_EQ(plugin.reg_mr(comm, host.data(), kBytes, nccl_abi::kPtrHost, &host_mr), nccl_abi::kSuccess);
  opened.log();
  void* request = nullptr;
  const auto flush = [&](std::vector<void*> data, std::vector<int> sizes, std::vector<void*> mrs) {
    request = nullptr;
    const int n = static_cast<int>(data.size());
    return plugin.iflush(comm, n, data.data(), sizes.empty() ? nullptr : sizes.data(), mrs.data(), &request);
  };
  EXPECT_EQ(flush({host.data(), host.data()}, {100, 5}, {host_mr, host_mr}), nccl_abi::kSuccess);
  EXPECT_EQ(request, nullptr) << "host memory needs none";
  EXPECT_EQ(flush({device.data()}, {0}, {device_mr}), nccl_abi::kSuccess);
  EXPECT_EQ(request, nullptr) << "nothing came";
  EXPECT_EQ(flush({nullptr, nullptr}, {0, 0}, {nullptr, nullptr}), nccl_abi::kSuccess);
  EXPECT_EQ(request, nullptr);
  EXPECT_THAT(opened.log(), Not(HasSubstr("flush")));

  EXPECT_EQ(flush({nullptr, device.data() + 8, host.data()}, {0, 100, 100}, {nullptr, device_mr, host_mr}),
            nccl_abi::kSuccess);
  ASSERT_NE(request, nullptr);
  EXPECT_THAT(opened.log(), HasSubstr("flush: cuda 100\n"));
  int done = 0;
  EXPECT_TRUE(poll_until([&] {
    EXPECT_EQ(plugin.test(request, &done, nullptr), nccl_abi::kSuccess);
    return done == 1;
  }));

  EXPECT_EQ(flush({device.data() + 1000, host.data()}, {}, {device_mr, host_mr}), nccl_abi::kSuccess);
  EXPECT_THAT(opened.log(), HasSubstr("flush: cuda " + std::to_string(kBytes - 1000) + "\n"));
  EXPECT_EQ(flush({host.data()}, {}, {device_mr}), nccl_abi::kInvalidArgument) << "another range than the mhandle's";

  std::vector<void*> nine(9, device.data());
  EXPECT_EQ(flush(nine, std::vector<int>(9, 1), std::vector<void*>(9, device_mr)), nccl_abi::kInvalidArgument);
  EXPECT_THAT(opened.log(), HasSubstr("iflush: 9 receives; 1 to 8 are allowed"));
  EXPECT_EQ(flush({device.data()}, {100}, {nullptr}), nccl_abi::kInvalidArgument) << "no memory, but bytes";
  EXPECT_EQ(plugin.dereg_mr(comm, device_mr), nccl_abi::kSuccess);
  EXPECT_EQ(plugin.dereg_mr(comm, host_mr), nccl_abi::kSuccess);
}

// NCCL hands back its mhandle with each isend: whose memory it is was settled when it was registered.
TEST(GpuMemorySends, AThousandLookNothingUp) {
  Opened opened("device-memory", 11);
  NetPlugin& plugin = opened.plugin();
  SharedMemory from;
  SharedMemory to;
  void* from_mr = nullptr;
  void* to_mr = nullptr;
  ASSERT_EQ(plugin.reg_mr(opened.connection().send, from.data(), kBytes, nccl_abi::kPtrCuda, &from_mr),
            nccl_abi::kSuccess);
  ASSERT_EQ(plugin.reg_mr(opened.connection().recv, to.data(), kBytes, nccl_abi::kPtrCuda, &to_mr), nccl_abi::kSuccess);
  for (std::size_t i = 0; i < 1000; ++i) {
    send_between(opened, from.data() + i * 64, from_mr, to.data() + i * 64, to_mr, 1 + i % 128);
  }
  EXPECT_EQ(plugin.dereg_mr(opened.connection().send, from_mr), nccl_abi::kSuccess);
  EXPECT_EQ(plugin.dereg_mr(opened.connection().recv, to_mr), nccl_abi::kSuccess);
  EXPECT_THAT(opened.end(), AllOf(HasSubstr("1000 messages"), HasSubstr("2 registrations looked up, 0 held")));
}

// What the plugin decides of a message (its collective, its loss) comes from its size and NCCL's words: memory that no
// CPU may read is sent, received and flushed as any other.
TEST(GpuMemorySends, ThePluginReadsNoMemory) {
  Opened opened("swallowing", 11);
  NetPlugin& plugin = opened.plugin();
  void* const unreadable = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(unreadable, MAP_FAILED);
  for (std::size_t size : {std::size_t{1}, std::size_t{4096}, kBytes}) {
    void* send_mr = nullptr;
    void* recv_mr = nullptr;
    ASSERT_EQ(plugin.reg_mr(opened.connection().send, unreadable, kBytes, nccl_abi::kPtrCuda, &send_mr),
              nccl_abi::kSuccess);
    ASSERT_EQ(plugin.reg_mr(opened.connection().recv, unreadable, kBytes, nccl_abi::kPtrCuda, &recv_mr),
              nccl_abi::kSuccess);
    void* send = nullptr;
    void* recv = nullptr;
    void* flush = nullptr;
    void* data = unreadable;
    int tag = 1;
    int bytes = static_cast<int>(size);
    ASSERT_EQ(plugin.isend(opened.connection().send, unreadable, size, tag, send_mr, nullptr, &send),
              nccl_abi::kSuccess);
    ASSERT_EQ(plugin.irecv(opened.connection().recv, 1, &data, &size, &tag, &recv_mr, nullptr, &recv),
              nccl_abi::kSuccess);
    ASSERT_EQ(plugin.iflush(opened.connection().recv, 1, &data, &bytes, &recv_mr, &flush), nccl_abi::kSuccess);
    for (void* request : {send, flush}) {
      int done = 0;
      EXPECT_TRUE(poll_until([&] {
        EXPECT_EQ(plugin.test(request, &done, nullptr), nccl_abi::kSuccess);
        return done == 1;
      }));
    }
    EXPECT_EQ(plugin.dereg_mr(opened.connection().send, send_mr), nccl_abi::kSuccess);
    EXPECT_EQ(plugin.dereg_mr(opened.connection().recv, recv_mr), nccl_abi::kSuccess);
  }
  opened.end();
  munmap(unreadable, kBytes);
}

}  // namespace
}  // namespace clustar::tests
