// What waist 1 and the core say of a message, in each other's words.
#pragma once

#include "mlt/core/send/sender.h"
#include "mlt/core/wire.h"
#include "transport/api/flow_tag.h"

namespace clustar::mlt::driver {

// Unknown when the channel is above 255 or the number 2^48 or more, which the wire cannot say.
Identity identity_of(const transport::MessageIdentity& identity);

// Of a message that may be lost within `loss` (null: that is reliable) and is `identity`. The wire has one communicator
// and one total for both: only for what agrees() with each other.
SendTerms send_terms(const transport::LossTerms* loss, const transport::MessageIdentity& identity);
// An identity that is not known contradicts nothing.
bool agrees(const transport::LossTerms& loss, const transport::MessageIdentity& identity);

// `tolerated`: Receiver::tolerates().
transport::ReceivedMessage received_message(const OpenRecord& open, bool tolerated);

}  // namespace clustar::mlt::driver
