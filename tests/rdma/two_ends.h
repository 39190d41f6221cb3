// Two queue pairs, one on each SoftRoCE device, with memory of their own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/rdma/link.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/queue_pair.h"

namespace clustar::tests {

namespace verbs = transport::io::verbs;

// The value; a failure is thrown, which GoogleTest reports with its message.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

struct EndOptions {
  ibv_qp_type type = IBV_QPT_RC;
  verbs::RetryOptions retry{.timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  bool shared_receives = false;
  bool channel = false;
  std::uint32_t inline_bytes = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  std::size_t memory = 1 << 20;
};

// What the other end must know to connect.
struct Contact {
  verbs::Gid gid{};
  std::uint32_t queue_pair = 0;
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
};

inline constexpr std::uint32_t kQKey = 0x1234;

class End {
 public:
  End(const std::string& device_name, const EndOptions& end_options);

  Contact contact() const;
  void connect(const Contact& peer);

  // Receives into [offset, offset + length); by the shared queue if there is one.
  void receive(std::uint64_t id, std::size_t offset, std::size_t length);
  // [offset, offset + length) of here, to `remote` bytes into the peer's memory where that matters.
  ibv_send_wr request(ibv_wr_opcode opcode, std::size_t offset, std::size_t length, std::size_t remote = 0);
  void post(ibv_send_wr request);

  // The next completion, whatever it is. Throws when none comes in time.
  ibv_wc completion(std::chrono::milliseconds limit = std::chrono::seconds(20));
  // A successful one; throws the explanation of a failed one.
  ibv_wc success();
  // The next one if there is one in time.
  std::optional<ibv_wc> next(std::chrono::milliseconds limit);

  std::byte* bytes(std::size_t offset = 0) { return memory.data() + offset; }
  void fill(std::size_t offset, std::size_t length, int seed);
  bool filled(std::size_t offset, std::size_t length, int seed) const;

  EndOptions options;
  std::vector<std::byte> memory;
  verbs::Device device;
  verbs::GidEntry gid{};
  verbs::ProtectionDomain domain;
  verbs::MemoryRegion region;
  verbs::CompletionQueue queue;
  std::optional<verbs::SharedReceiveQueue> shared{};
  std::optional<verbs::QueuePair> pair{};

 private:
  Contact peer_{};
  ibv_sge sge_{};
};

// a on rxe_a, b on rxe_b, connected. Skips where they are not.
class TwoEnds : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_devices(); !reason.empty()) GTEST_SKIP() << reason;
  }
  void connect(const EndOptions& options = {}) {
    a = std::make_unique<End>("rxe_a", options);
    b = std::make_unique<End>("rxe_b", options);
    a->connect(b->contact());
    b->connect(a->contact());
  }

  std::unique_ptr<End> a;
  std::unique_ptr<End> b;
};

}  // namespace clustar::tests
