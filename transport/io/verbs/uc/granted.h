// The places that one peer granted us to write into, and which of their segments we have written. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/ring.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/uc/wire.h"

namespace clustar::transport::io::verbs::uc {

class Granted {
 public:
  // Older ones are forgotten: their packets go as datagrams.
  static constexpr std::size_t kMost = 512;

  // A grant for a slot that has another one takes its place, if it is newer; the same one again changes nothing.
  // False: nothing new.
  bool on_grant(const Grant& grant);
  void on_revoke(std::uint32_t id);
  void clear();

  struct Target {
    std::uint32_t grant = 0;
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
  };
  // Whether `length` bytes are the segment's, granted, and not written before; and then they count as written.
  std::optional<Target> take(const Destination& at, std::size_t length);
  // Of the grant that take() would use.
  std::uint32_t id_of(std::uint64_t slot) const;
  bool can_take(const Destination& at, std::size_t length) const;
  std::size_t size() const { return by_slot_.size(); }

 private:
  struct Entry {
    Grant grant{};
    bool revoked = false;  // kept, so that a grant that is repeated late does not bring it back
    std::vector<std::uint64_t> written{};
  };
  std::unordered_map<std::uint64_t, Entry> by_slot_;
  Ring<std::uint64_t> order_;  // of arrival; a slot is in it once
};

}  // namespace clustar::transport::io::verbs::uc
