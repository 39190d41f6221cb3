// Waist 2: unreliable, unordered packets in bursts. A backend moves bytes and says what it knows about each packet; it
// keeps no connection, retransmits nothing and knows no protocol.
//
// Thread rule: one thread at a time calls all of it, the writer too; but reg_mr, ~Mr and quiesce may run beside the
// others, and what local_address(), link(), reach() and ready_fds() return is the same forever, for any thread.
// Lifetime rule: a PacketIo outlives its Mrs and is destroyed after all received packets were released.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gdr/memory.h"
#include "transport/base/result.h"
#include "transport/base/time.h"
#include "transport/io/address_blob.h"
#include "transport/io/link_profile.h"
#include "transport/io/reach.h"
#include "transport/net/endpoint.h"

namespace clustar::transport::io {

using PeerId = std::uint32_t;  // a remote endpoint, as the backend numbers it

// Memory that the backend may read from and write to.
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

struct MemorySlice {
  const Mr* mr = nullptr;  // null: an empty slice
  std::size_t offset = 0;
  std::size_t length = 0;
};

// Bytes that travel in front of the payload and are copied when the packet is handed over.
class Header {
 public:
  static constexpr std::size_t kMax = 128;
  Header() = default;
  explicit Header(std::size_t size) : size_(size <= kMax ? size : kMax) {}
  void resize(std::size_t size) { size_ = size <= kMax ? size : kMax; }  // keeps what is there
  std::span<std::byte> bytes() { return std::span(bytes_).first(size_); }
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::byte, kMax> bytes_{};
  std::size_t size_ = 0;
};

enum class Ecn : std::uint8_t { kNotEct = 0, kEct1 = 1, kEct0 = 2, kCe = 3 };  // RFC 3168, section 5

// Where payload belongs at the peer: at segment * segment_bytes of what it expects as `slot`, if it told expect() the
// same segment_bytes.
struct Destination {
  std::uint64_t slot = 0;  // 0 = nowhere
  std::uint32_t segment = 0;
  std::uint32_t segment_bytes = 0;
};

struct TxPacket {
  PeerId peer = 0;
  std::uint8_t path = 0;  // < Capabilities::paths; packets of one path keep their order unless the network breaks it
  std::uint8_t traffic_class = 0;  // 0 .. 7, 7 is served first
  // Of the IP header, in place of the one that belongs to traffic_class: DSCP << 2; 0 = none. Where a backend cannot
  // say it, traffic_class counts. The receiver may take it for another class.
  std::uint8_t dscp = 0;
  bool ect = false;  // a switch may mark this packet instead of dropping it
  Header header;
  MemorySlice payload;  // unchanged until the backend has read it: see Capabilities::copies
  // A hint, for first transmissions only: what is sent again may meet the first one on its way.
  Destination destination{};
};

struct RxPacket {
  PeerId peer = 0;
  std::uint8_t path = 0;
  std::uint8_t traffic_class = 0;  // as sent; 7 when trimmed
  Ecn ecn = Ecn::kNotEct;
  bool trimmed = false;  // a switch cut the payload off
  TimePoint rx_time{};   // when it was read
  Duration waited{};     // in this host, before that; 0: unknown, see tell_waits()
  std::span<const std::byte> header;
  // Empty when it was placed by a PlacementHint: its bytes are there. Where `placed` is true, those very bytes, until
  // release() or cancel().
  std::span<const std::byte> payload;
  std::uint64_t cookie = 0;  // the backend's, for release()
  bool placed = false;
};

// When payload memory is free again. copies: when send() returns. Otherwise when Capabilities::in_flight further
// packets were taken, and a later send() took one or wait() returned; at the latest when quiesce() or ~Mr returns.
struct Capabilities {
  std::size_t max_packet = 0;  // header and payload together
  std::size_t header_bytes = Header::kMax;
  std::uint8_t paths = 1;
  bool marks = false;                  // reports Ecn::kCe
  bool landing = false;                // expect() places payload
  bool rewrites_until_cancel = false;  // and may do so again after the packet was returned: see expect()
  bool copies = true;                  // payload memory is free again when send() returns
  std::uint32_t in_flight = 0;         // if not: so many packets, the latest that send() took, may still be read later
};

// A hint that was accepted by expect().
struct PlacementHint {
  std::uint64_t id = 0;  // 0 = not accepted
};

// Fills registered memory that the processor cannot write, as that of GPUs. Nothing here waits but quiesce().
//
// Each call that returns true is one operation. Operations take effect and end in the order of the calls, also between
// different memory; `target` is within its Mr, of 1 to most_bytes() bytes. False: no room, nothing has begun; there is
// again when finished() has moved. Errors are the writer's end, and what was begun may never end.
class MemoryWriter {
 public:
  virtual ~MemoryWriter() = default;
  virtual std::size_t most_bytes() const = 0;  // of one operation
  // The bytes, as many as the target has, are the caller's again when this returns.
  virtual Result<bool> write(const MemorySlice& target, std::span<const std::byte> bytes) = 0;
  virtual Result<bool> zero(const MemorySlice& target) = 0;
  // Ends when what was written to that memory before, by peers too, is visible to the memory's owner.
  virtual Result<bool> flush(const MemorySlice& target) = 0;
  // How many operations have ended, of all that were ever begun: the oldest ones.
  virtual Result<std::uint64_t> finished() = 0;
  // Returns when nothing that was begun before touches memory any more, ended or not. Bounded: a writer that does not
  // finish is lost, which the next call tells. May run beside the other calls.
  virtual void quiesce() = 0;
};

class PacketIo {
 public:
  virtual ~PacketIo() = default;
  virtual const Capabilities& capabilities() const = 0;  // max_packet may become smaller
  virtual const LinkProfile& link() const = 0;
  virtual Reach reach() const { return {}; }

  // What a peer's add_peer() needs to know of this end.
  virtual AddressBlob local_address() const = 0;
  // `address`: what the peer's local_address() is said to be: bytes from the network. `control`: the far end of its
  // control connection, whose host packets go to, unless CLUSTAR_CONTROL_IFNAME allows others: control_network.h. Error
  // kRemote: damaged, or another host; others: a peer already, or one that this end cannot reach.
  virtual Result<PeerId> add_peer(const AddressBlob& address, const net::Endpoint& control) = 0;
  // What waits from it is dropped, and what was received stays valid until released. Error kInvalidArgument: no peer.
  virtual Result<void> remove_peer(PeerId peer) = 0;
  // After max_packet became smaller: packets of the former length pass from now on. False: they pass already, or never
  // will.
  virtual bool allow_fragments() { return false; }

  virtual Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) = 0;

  // Takes packets from the front, returns how many; the caller keeps the rest and offers them first next time. That is
  // back-pressure, not loss. kInvalidArgument: the first packet not taken can never be sent (too long, no such path or
  // class, memory that is not registered, no header); the device goes on. Any other error is the device's end.
  virtual Result<std::size_t> send(std::span<const TxPacket> packets) = 0;
  // Fills packets from the front, returns how many; their spans stay valid until release().
  virtual Result<std::size_t> receive(std::span<RxPacket> packets) = 0;
  virtual void release(std::span<const RxPacket> packets) = 0;

  // Hint: payload of message `slot` from `peer` belongs to `target`, cut into segments of `segment_bytes`; none of it
  // has come so far. Until cancel() the backend may write into every segment whose packet receive() has not yet
  // returned, also bytes that belong elsewhere, and into no other one: a caller that reads a segment before its packet
  // was returned, as a GPU that polls flags in the payload does, must not be given away. With rewrites_until_cancel it
  // writes only what was sent for a segment, but once more for every time that the network delivers it, so nobody may
  // own the target before cancel(). What the caller fills in by other means (zeroes, a retransmission by another
  // device) it fills in after cancel(); the same bytes that the peer's packet had may be written before.
  virtual PlacementHint expect(PeerId peer, std::uint64_t slot, const MemorySlice& target,
                               std::size_t segment_bytes) = 0;
  // Nothing is written from now on: returns when that is sure. Segments whose packets were not returned have any bytes.
  // Packets that were placed before may still be returned, but none with `placed`. A PlacementHint that is not in use
  // is ignored.
  virtual void cancel(PlacementHint landing) = 0;

  // Returns when no payload is read any more of what was taken before. Bounded: a device that does not finish is lost.
  // May run beside the other calls, as ~Mr does, which does the same first.
  virtual void quiesce() {}

  // Bytes that send() took and that have not left this host, as far as is known; 0: none, or not known.
  virtual std::uint64_t unsent_bytes() const { return 0; }
  // From now on RxPacket::waited is told, where the backend can know it; each packet costs some more for it.
  virtual void tell_waits() {}

  // As long as this lives. Null: there is none, and received payload can only be placed in host memory.
  virtual MemoryWriter* writer() { return nullptr; }

  // For a thread that sleeps without holding the device: one of them is readable when something can be received. None:
  // it must look now and then, every link().blind_sleep().
  virtual std::span<const int> ready_fds() const { return {}; }
  // To be called before a thread sleeps on them: how long it may at most, because of what they do not tell of. 0: there
  // is something already.
  virtual Duration before_sleep() { return Duration::max(); }
  // Returns when something can be received; after a send() that took less than it was offered, also when more can be
  // sent; at the latest after `timeout`.
  virtual void wait(Duration timeout) = 0;

  virtual std::string describe() const { return {}; }  // what it did, one line for people; empty: nothing to tell
};

}  // namespace clustar::transport::io
