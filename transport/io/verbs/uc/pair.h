// Pairs: UC queue pairs, each with one of the peer's, for one path and traffic class in one direction. They are made
// and connected by a thread, because both may take long: a device waits up to 1 s for the peer's Ethernet address.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "transport/io/packet_io.h"
#include "transport/io/verbs/queue_pair.h"
#include "transport/io/verbs/uc/wire.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs::uc {

// What pairs are made of. All of it outlives them.
struct PairParts {
  const ProtectionDomain* domain = nullptr;
  const CompletionQueue* send_queue = nullptr;
  const CompletionQueue* recv_queue = nullptr;
  const SharedReceiveQueue* receives = nullptr;
  std::uint32_t send_requests = 128;
  std::uint8_t port = 1;
  int gid_index = -1;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  FixedMarks marks{};
};

struct PairJob {
  enum class What : std::uint8_t {
    kMake,     // a queue pair of our own that will write: without the peer's
    kConnect,  // that one, to the peer's
    kAnswer,   // a queue pair that takes the peer's writes
  } what = What::kMake;
  PeerId peer = 0;
  std::uint32_t session = 0;  // ours with the peer
  std::uint8_t key = 0;
  std::uint8_t dscp = 0;  // TxPacket::dscp of what is written by it
  Gid gid{};              // the peer's
  PairEnd theirs{};
  PairEnd ours{};  // filled by kMake and kAnswer
  std::optional<QueuePair> pair{};
  std::optional<Error> error{};
};

ibv_mtu lesser(ibv_mtu one, std::uint8_t other);
constexpr std::size_t mtu_bytes(ibv_mtu mtu) { return std::size_t{128} << mtu; }

// Does jobs in a thread of its own. submit and poll are for one other thread.
class PairMaker {
 public:
  explicit PairMaker(const PairParts& parts);
  ~PairMaker();  // waits for the job that is being done: 1 s at most
  PairMaker(const PairMaker&) = delete;
  PairMaker& operator=(const PairMaker&) = delete;

  void submit(PairJob job);
  std::optional<PairJob> poll();
  std::size_t open() const { return open_; }  // submitted and not polled

 private:
  void run();
  void perform(PairJob& job) const;
  Result<void> make(PairJob& job) const;
  Result<void> connect(PairJob& job) const;

  const PairParts parts_;
  std::size_t open_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<PairJob> jobs_;
  std::deque<PairJob> done_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace clustar::transport::io::verbs::uc
