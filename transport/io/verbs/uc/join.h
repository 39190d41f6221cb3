// Writes and their headers come by different ways; this brings together what belongs together. Pure.
//
// A write tells its number (the immediate) and how many bytes it wrote, a header the same number and all else. Numbers
// count up per peer. What stays alone until `window` later numbers have been seen is forgotten: a loss. So is a header
// whose write does not come in time, because its room is everybody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/ring.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/uc/wire.h"

namespace clustar::transport::io::verbs::uc {

// Room for headers, shared by all peers: from their arrival until the packet is released.
class HeaderBlocks {
 public:
  explicit HeaderBlocks(std::uint32_t count);
  // Copies. Nothing when all are taken.
  std::optional<std::uint32_t> put(std::span<const std::byte> header);
  std::span<const std::byte> get(std::uint32_t block) const { return blocks_[block].bytes(); }
  void free(std::uint32_t block) { free_.push_back(block); }
  std::size_t free_count() const { return free_.size(); }
  std::size_t size() const { return blocks_.size(); }

 private:
  std::vector<Header> blocks_;
  std::vector<std::uint32_t> free_;
};

class Join {
 public:
  struct Counters {
    std::uint64_t joined = 0;
    std::uint64_t duplicate_writes = 0;
    std::uint64_t lost_writes = 0;  // a header came, or would have, but the write did not
    std::uint64_t lost_headers = 0;
    std::uint64_t late = 0;      // behind the window
    std::uint64_t no_block = 0;  // headers without room
  };
  // A packet that is whole. Its block is the caller's from now on.
  struct Packet {
    std::uint32_t grant = 0;
    std::uint32_t segment = 0;
    std::uint32_t bytes = 0;
    std::uint8_t pair = 0;
    Ecn ecn = Ecn::kNotEct;
    std::uint32_t block = 0;
  };

  // `window`: a power of two. The blocks outlive this.
  Join(HeaderBlocks& blocks, std::uint32_t window);
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  void on_write(std::uint32_t number, std::uint32_t bytes);
  enum class Heard : std::uint8_t {
    kKnown,           // or behind the window
    kWhole,           // its write was there
    kWaits,           // for its write
    kNoRoom,          // so it is lost, unless it comes again
    kNoRoomAndWaits,  // its write is missing, too
  };
  Heard on_header(std::uint32_t number, const WrittenHeader& header, Ecn ecn);
  // Forgets the headers that waited for their writes at the last call already.
  void expire();
  // In the order in which they became whole.
  std::optional<Packet> poll();
  bool has_ready() const { return !ready_.empty(); }
  // Headers that wait for their write: something may yet come without a datagram that tells of it.
  std::uint32_t waiting() const { return waiting_; }
  const Counters& counters() const { return counters_; }
  bool is_consistent() const;  // looks at everything: for tests

 private:
  struct Entry {
    bool written = false;
    bool headed = false;
    bool done = false;  // joined; what else comes of this number is a duplicate
    bool old = false;   // waited at the last expire()
    Packet packet{};
  };
  Entry* find(std::uint32_t number);  // moves the window; null behind it
  void forget(Entry& entry);
  void check(Entry& entry);

  HeaderBlocks& blocks_;
  std::vector<Entry> entries_;  // by number modulo the window
  std::uint32_t newest_ = 0;    // numbers begin at 1
  std::uint32_t waiting_ = 0;
  Ring<Packet> ready_;
  Counters counters_;
};

}  // namespace clustar::transport::io::verbs::uc
