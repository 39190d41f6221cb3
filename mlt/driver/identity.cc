#include "mlt/driver/identity.h"

#include <limits>

namespace clustar::mlt::driver {

using transport::LossTerms;
using transport::MessageIdentity;
using transport::ReceivedMessage;

static_assert(Identity::kUnknown == MessageIdentity::kUnknown && Identity::kNoRank == MessageIdentity::kNoRank &&
              Identity::kNumbers == MessageIdentity::kNumbers);

Identity identity_of(const MessageIdentity& identity) {
  if (!identity.known || identity.channel > std::numeric_limits<std::uint8_t>::max() ||
      identity.number >= Identity::kNumbers) {
    return {};
  }
  Identity out;
  out.known = true;
  out.local_number = identity.local_number;
  out.number = identity.number;
  out.transfer = identity.transfer;
  out.channel = static_cast<std::uint8_t>(identity.channel);
  out.function = identity.function;
  out.datatype = identity.datatype;
  out.algorithm = identity.algorithm;
  out.protocol = identity.protocol;
  out.sender = identity.sender;
  return out;
}

bool agrees(const LossTerms& loss, const MessageIdentity& identity) {
  return !identity.known ||
         (loss.communicator == identity.communicator && loss.collective_bytes == identity.total_bytes);
}

SendTerms send_terms(const LossTerms* loss, const MessageIdentity& identity) {
  SendTerms terms;
  terms.identity = identity_of(identity);
  if (terms.identity.known) {
    terms.communicator = identity.communicator;
    terms.collective_bytes = identity.total_bytes;
  }
  if (loss == nullptr) return terms;
  terms.tolerant = true;
  terms.stage = loss->stage;
  terms.communicator = loss->communicator;
  terms.collective = loss->collective;
  terms.ranks = loss->ranks;
  terms.edges = loss->edges;
  terms.collective_bytes = loss->collective_bytes;
  terms.tolerance_ppm = loss->tolerance_ppm;
  terms.exchange = loss->exchange;
  return terms;
}

ReceivedMessage received_message(const OpenRecord& open, bool tolerated) {
  ReceivedMessage out;
  if (const Identity& from = open.identity; from.known) {
    MessageIdentity& to = out.identity;
    to.known = true;
    to.local_number = from.local_number;
    to.communicator = open.communicator;
    to.number = from.number;
    to.total_bytes = open.collective_bytes;
    to.transfer = from.transfer;
    to.channel = from.channel;
    to.function = from.function;
    to.datatype = from.datatype;
    to.algorithm = from.algorithm;
    to.protocol = from.protocol;
    to.sender = from.sender;
  }
  if (tolerated) {
    out.loss = {open.communicator, open.collective, open.collective_bytes, open.ranks,
                open.edges,        open.stage,      open.tolerance_ppm,    open.exchange};
  }
  return out;
}

}  // namespace clustar::mlt::driver
