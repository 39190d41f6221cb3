// Waist 1: what every transport offers and everything above it uses. The shape is ncclNet's: nothing blocks, nothing
// calls back; a null pointer means "not yet, call again"; destroying an object closes or deregisters it.
// Bytes move only within calls: a message needs the requests of both its ends to be tested.
//
// Thread rule: the calls on one Listener, PendingConnect or channel (its requests included) come from one thread at a
// time, except reg_mr and ~Mr, which may run beside them. Different objects are independent.
// Lifetime rule: a Transport outlives all that it made; a channel outlives its requests' use; memory handed to send or
// recv stays valid until the request is done or the channel is destroyed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gdr/memory.h"
#include "transport/api/counters.h"
#include "transport/api/flow_tag.h"
#include "transport/base/result.h"
#include "transport/base/shared_digest.h"

namespace clustar::transport {

// What a listener gives to its future peers, carried by someone else (NCCL's bootstrap). The plugin keeps the last
// 8 bytes of NCCL's 128 for itself.
using Handle = std::array<std::byte, 120>;

inline constexpr std::size_t kMaxRecvParts = 8;
inline constexpr std::size_t kMaxFused = 8;

struct DeviceProperties {
  std::string name;
  std::string pci_path;  // sysfs path; empty = not a PCI device
  std::uint64_t guid = 0;
  int speed_mbps = 0;
  int port = 1;
  float latency_us = 0;
  int max_channels = 0;
  int max_recv_parts = 1;
  std::uint32_t memory_kinds = 0;  // a set of gdr::bit(kind)
  // For a person, one line: by which way it reaches GPU memory, or why it does not. Empty: nothing is known.
  std::string gdr{};
  bool global_registration = false;
  // True when the bytes of a message become visible in order, 128-byte line by line: what NCCL's LL128 needs, whose
  // kernels look at the lines while the message arrives, in host memory as well.
  bool ordered_lines = false;
  bool may_lose = false;  // loses what FlowTag::loss allows; otherwise every message is reliable
  // NCCL is to flush after every receive into a GPU, also where the GPU by itself would need none.
  bool force_flush = false;
  std::vector<int> fused{};   // the devices that this one sends over; empty: it is a plain one
  std::int16_t rail_id = -1;  // of the network that a device is on, and of its plane; -1 = not known
  std::int16_t plane_id = -1;
};

struct ChannelOptions {
  std::uint64_t comm_id = 0;  // 0: not known, messages of several communicators may come
  int traffic_class = -1;     // NCCL's trafficClass; -1 = undefined
  // The communicator's opt-in to loss: what FlowTag::loss may allow to lose on this channel, in parts per million,
  // 0 .. 1,000,000. 0: everything is reliable, whatever a FlowTag or a peer says. Both ends of a channel say the same,
  // else it is not connected. A transport that never loses (TCP) ignores it.
  std::uint32_t max_tolerance_ppm = 0;
  // NCCL's rank in the communicator, for messages; -1 = unknown.
  int rank = -1;
  std::uint32_t job = 0;  // FlowKey::job
  // Of a listener: somebody wants to know what each message is (ReceivedMessage::identity). Else a transport need not
  // carry it, and messages may come without.
  bool reads_identity = false;
  // Of the settings that all ranks need alike. Both ends say the same, otherwise it is not connected; the error names
  // the setting and both ranks.
  SharedDigest config{};
  std::span<const std::string> config_names{};  // of these settings; outlives the channel's connecting
};

// Registered memory.
class Mr {
 public:
  explicit Mr(gdr::MemoryRef memory) : memory_(memory) {}
  virtual ~Mr() = default;
  Mr(const Mr&) = delete;
  Mr& operator=(const Mr&) = delete;
  const gdr::MemoryRef& memory() const { return memory_; }

 private:
  gdr::MemoryRef memory_;
};

// Bytes of part `part` that the network lost. Of a receive: they read as zero. Of a send: its receiver does without
// them, and that is final. Only a loss-tolerant transport reports any.
struct MissingRange {
  std::uint32_t part;
  std::uint64_t offset;
  std::uint64_t length;
};

struct Progress {
  bool done = false;
  std::span<const std::size_t> sizes;  // valid when done: bytes per part (one for a send; none for a flush)
  std::span<const MissingRange> missing;
  // Of a receive, when done: what the sender said of each part's message. Empty from a transport that carries none.
  std::span<const ReceivedMessage> messages{};
  // Of a send, when done: what send() was given. Null from a transport that loses nothing.
  const FlowTag* sent = nullptr;
};

class Request {
 public:
  // After done or an error the request belongs to the channel again and must not be tested any more; the spans in the
  // answer stay valid until the channel's next call.
  virtual Result<Progress> test() = 0;

 protected:
  ~Request() = default;
};

struct RecvPart {
  const Mr* mr;
  std::size_t offset;
  std::size_t length;
  int tag;
};

// Who is at the other end of a channel.
struct PeerInfo {
  std::string host{};  // as the network names it
  int rank = -1;       // what it said of itself (ChannelOptions::rank); -1 = unknown
};

class SendChannel {
 public:
  virtual ~SendChannel() = default;
  const PeerInfo& peer() const { return far_end_; }
  virtual Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) = 0;
  // Sends `length` bytes (0 is a message too) to the receive that the peer posted with the same tag, in posting order
  // per tag; when that receive is shorter, the message is cut. Null: too much outstanding, try again.
  virtual Result<Request*> send(const Mr& mr, std::size_t offset, std::size_t length, int tag, const FlowTag& flow) = 0;

 protected:
  explicit SendChannel(PeerInfo peer = {}) : far_end_(std::move(peer)) {}

 private:
  const PeerInfo far_end_;
};

class RecvChannel {
 public:
  virtual ~RecvChannel() = default;
  const PeerInfo& peer() const { return far_end_; }  // who dialled
  virtual Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) = 0;
  // Posts up to kMaxRecvParts receives that complete together. Null: too much outstanding, try again.
  virtual Result<Request*> recv(std::span<const RecvPart> parts) = 0;
  // Makes received bytes visible to the memory's owner. Null: nothing to wait for.
  virtual Result<Request*> flush(std::span<const RecvPart> parts) = 0;

 protected:
  explicit RecvChannel(PeerInfo peer = {}) : far_end_(std::move(peer)) {}

 private:
  const PeerInfo far_end_;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  // Destroying the listener leaves accepted channels alone.
  virtual Result<std::unique_ptr<RecvChannel>> poll_accept() = 0;
};

class PendingConnect {
 public:
  virtual ~PendingConnect() = default;
  virtual Result<std::unique_ptr<SendChannel>> poll() = 0;  // gives the channel once, null afterwards
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  // Any thread. What was given stays valid when fuse() adds to it.
  virtual std::span<const DeviceProperties> devices() const = 0;
  // Index of the device that sends over all of `devices`, made if there is none yet (DeviceTable). The plain ones stay.
  // One call at a time, beside all others.
  // Error: these cannot be fused, or this transport fuses none; the caller goes on with the plain ones.
  virtual Result<int> fuse(std::span<const int>) {
    return fail(ErrorCode::kUnavailable, std::string(name()) + " fuses no devices");
  }
  virtual Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) = 0;
  virtual Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                          const ChannelOptions& options) = 0;
  // What it did since it was made. Any thread.
  virtual Counters counters() const = 0;
  // The same in one line, for people.
  std::string summary() const { return counters().summary(); }
};

}  // namespace clustar::transport
