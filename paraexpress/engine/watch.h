// What a member learns of the others beside the messages of an operation.
#pragma once

#include <optional>

#include "paraexpress/core/forest.h"
#include "transport/base/result.h"

namespace clustar::paraexpress {

// Why an operation failed, and whose fault it is. kNobody: nothing moved, and it is not known yet who holds it up.
struct Blame {
  Member guilty = kNobody;
  Error error{};
};
// "rank 3: ..."
Blame blame(Member guilty, const Error& error);

// Thread rule: that of the mesh's channels.
class Watch {
 public:
  virtual ~Watch() = default;
  // Takes what the others said since. The first failure, if one told of one or is gone without a word.
  virtual std::optional<Blame> look() = 0;
  // Nothing was heard from the peer, and it is not known to be gone.
  virtual bool silent(Member peer) const = 0;
};

// The peer's channel failed: unless the others say who is to blame, it is the peer. Waits a moment for what they say.
Blame who_failed(Watch& watch, Member peer, const Error& error);

}  // namespace clustar::paraexpress
