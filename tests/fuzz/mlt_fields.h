// The fields of MLT's packets, one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mlt/core/wire.h"

namespace clustar::fuzz {

// Calls `visit` for each field but the secret, which the peer has. Arrays count as their words.
template <class Visit>
void visit_fields(mlt::Identity& identity, Visit&& visit) {
  visit(identity.known);
  visit(identity.local_number);
  visit(identity.number);
  visit(identity.transfer);
  visit(identity.algorithm);
  visit(identity.sender);
}

template <class Visit>
void visit_fields(mlt::OpenRecord& open, Visit&& visit) {
  visit(open.tag);
  visit(open.tag_seq);
  visit(open.forgotten_below);
  visit(open.stage);
  visit(open.tolerant);
  visit(open.exchange);
  visit(open.communicator);
  visit(open.collective);
  visit(open.ranks);
  visit(open.edges);
  visit(open.collective_bytes);
  visit(open.tolerance_ppm);
  visit(open.important);
  visit_fields(open.identity, visit);
}

template <class Visit>
void visit_fields(mlt::DataHeader& data, Visit&& visit) {
  visit(data.message);
  visit(data.index);
  visit(data.path_seq);
  visit(data.message_bytes);
  visit(data.segment);
  visit(data.passed);
  visit(data.sent_units);
  visit(data.trip);
  visit(data.path);
  visit(data.traffic_class);
  visit(data.retransmission);
  visit(data.important);
  visit(data.ack_now);
  visit(data.quiet);
  visit(data.parity);
  bool has_open = data.open.has_value();
  visit(has_open);
  if (!has_open) {
    data.open.reset();
    return;
  }
  if (!data.open) data.open.emplace();
  visit_fields(*data.open, visit);
}

template <class Visit>
void visit_fields(mlt::Ack& ack, Visit&& visit) {
  visit(ack.credit_units);
  visit(ack.finished_below);
  visit(ack.count);
  for (std::size_t i = 0; i < std::min<std::size_t>(ack.count, mlt::Ack::kMaxBlocks); ++i) {
    mlt::AckBlock& block = ack.blocks[i];
    visit(block.largest);
    visit(block.before);
    visit(block.marked);
    visit(block.delay_us);
    visit(block.waited_us);
    visit(block.path);
    visit(block.traffic_class);
  }
}

template <class Visit>
void visit_fields(mlt::Posted& posted, Visit&& visit) {
  visit(posted.tag);
  visit(posted.tag_seq);
  visit(posted.length);
  visit(posted.credit_units);
}

template <class Visit>
void visit_fields(mlt::State& state, Visit&& visit) {
  visit(state.message);
  visit(state.credit_units);
  visit(state.finished_below);
  visit(state.base);
  visit(state.count);
  visit(state.want);
  visit(state.stop);
  visit(state.complete);
  visit(state.matched);
  visit(state.asks);
  for (std::size_t at = 0; at < state.missing.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, &state.missing[at], sizeof(word));
    visit(word);
    std::memcpy(&state.missing[at], &word, sizeof(word));
  }
}

template <class Visit>
void visit_fields(mlt::Probe& probe, Visit&& visit) {
  visit(probe.message);
  visit(probe.sent);
  visit(probe.window);
  visit(probe.message_bytes);
  visit(probe.segment);
  visit(probe.sent_units);
  visit(probe.quiet);
  visit_fields(probe.open, visit);
}

}  // namespace clustar::fuzz
