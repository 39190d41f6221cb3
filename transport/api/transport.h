// Waist 1: the interface of every transport. It has the shape of ncclNet: nothing blocks and nothing calls back; a null
// pointer means "not yet, call again"; destroying an object closes or deregisters it. Bytes move only within calls: a
// message arrives only if the requests of both its ends are tested.
//
// Thread rule: one thread at a time calls a Listener, a PendingConnect or a channel and its requests, except reg_mr and
// ~Mr, which may run at the same time. Different objects are independent.
// Lifetime rule: a Transport outlives everything that it made, and a channel outlives its requests. Memory passed to
// send or recv stays valid until the request is done or the channel is destroyed.
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

// What a listener gives to its future peers; NCCL's bootstrap carries it. The plugin uses the last 8 bytes of NCCL's
// 128 itself.
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
  // One line for people: how it reaches GPU memory, or why it does not. Empty: nothing is known.
  std::string gdr{};
  bool global_registration = false;
  // True if the bytes of a message become visible in order, in lines of 128 bytes. NCCL's LL128 needs this, because its
  // kernels read the lines while the message arrives, in host memory as well.
  bool ordered_lines = false;
  bool may_lose = false;  // loses what FlowTag::loss allows; otherwise every message is reliable
  // NCCL must flush after every receive into a GPU, even if the GPU itself does not need it.
  bool force_flush = false;
  std::vector<int> fused{};    // the devices that this one sends over; empty: not a fused one
  std::int16_t rail_id = -1;   // the network that the device is on; -1 = unknown
  std::int16_t plane_id = -1;  // the plane of that network; -1 = unknown
};

struct ChannelOptions {
  std::uint64_t comm_id = 0;  // 0: unknown, or messages of several communicators
  int traffic_class = -1;     // NCCL's trafficClass; -1 = undefined
  // The communicator's opt-in to loss: the most that FlowTag::loss may allow on this channel, in parts per million,
  // 0 .. 1,000,000. 0: everything is reliable, whatever a FlowTag or a peer says. Both ends must give the same value,
  // or the connect fails. A transport that never loses (TCP) ignores it.
  std::uint32_t max_tolerance_ppm = 0;
  // NCCL's rank in the communicator, for errors and warnings; -1 = unknown.
  int rank = -1;
  std::uint32_t job = 0;  // FlowKey::job
  // For a listener: the receiver wants ReceivedMessage::identity. If false, a transport need not carry it, and messages
  // may arrive without it.
  bool reads_identity = false;
  // Digest of the settings that must be equal on all ranks. If they differ, the connect fails; the error names the
  // setting and both ranks.
  SharedDigest config{};
  std::span<const std::string> config_names{};  // of these settings; outlive the connect
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

// Lost bytes of part `part`. For a receive: they read as zero. For a send: its receiver will not get them. Only a
// loss-tolerant transport reports any.
struct MissingRange {
  std::uint32_t part;
  std::uint64_t offset;
  std::uint64_t length;
};

struct Progress {
  bool done = false;
  std::span<const std::size_t> sizes;  // valid when done: bytes per part (one for a send; none for a flush)
  std::span<const MissingRange> missing;
  // For a receive, when done: what the sender said about the message of each part. Empty if the transport carries
  // nothing.
  std::span<const ReceivedMessage> messages{};
  // For a send, when done: the tag passed to send(). Null from a transport that never loses.
  const FlowTag* sent = nullptr;
};

class Request {
 public:
  // After done or an error the channel owns the request again, and it must not be tested any more. The spans in the
  // answer stay valid until the next call on the channel.
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

// The other end of a channel.
struct PeerInfo {
  std::string host{};  // its network address
  int rank = -1;       // its own ChannelOptions::rank; -1 = unknown
};

class SendChannel {
 public:
  virtual ~SendChannel() = default;
  const PeerInfo& peer() const { return far_end_; }
  virtual Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) = 0;
  // Sends `length` bytes (0 is a message too) to the receive that the peer posted with the same tag, in posting order
  // per tag. If that receive is shorter, the message is truncated. Null: too many requests outstanding, try again.
  virtual Result<Request*> send(const Mr& mr, std::size_t offset, std::size_t length, int tag, const FlowTag& flow) = 0;

 protected:
  explicit SendChannel(PeerInfo peer = {}) : far_end_(std::move(peer)) {}

 private:
  const PeerInfo far_end_;
};

class RecvChannel {
 public:
  virtual ~RecvChannel() = default;
  const PeerInfo& peer() const { return far_end_; }  // the end that connected
  virtual Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) = 0;
  // Posts up to kMaxRecvParts receives that complete together. Null: too many requests outstanding, try again.
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
  // Any thread. The span stays valid when fuse() adds a device.
  virtual std::span<const DeviceProperties> devices() const = 0;
  // Index of the device that sends over all the given ones; it is made if there is none yet (DeviceTable). The plain
  // devices stay. One fuse() at a time; other calls may run beside it.
  // Error: these devices cannot be fused, or the transport fuses none; the caller then uses the plain ones.
  virtual Result<int> fuse(std::span<const int>) {
    return fail(ErrorCode::kUnavailable, std::string(name()) + " fuses no devices");
  }
  virtual Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) = 0;
  virtual Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                          const ChannelOptions& options) = 0;
  // Since the transport was made. Any thread.
  virtual Counters counters() const = 0;
  // The counters in one line, for people.
  std::string summary() const { return counters().summary(); }
};

}  // namespace clustar::transport
