// clustarApi_v1: the C API of clustar.h.

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <mutex>

#include "nccl_plugin/clustar.h"
#include "nccl_plugin/loss/phase.h"
#include "nccl_plugin/net/plugin_state.h"
#include "nccl_plugin/process.h"

namespace clustar::nccl_plugin {
namespace {

// The wall that no exception passes.
template <class Body>
int api_call(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception&) {
    return CLUSTAR_ENOMEM;  // the only one there is
  }
}

void fill(const Reception& from, clustarCollective_v1& to) {
  to.comm_id = from.identity.communicator;
  to.number = from.identity.number;
  to.function = from.identity.function;
  to.datatype = from.identity.datatype;
  to.algorithm = from.identity.algorithm;
  to.protocol = from.identity.protocol;
  to.local_number = from.identity.local_number ? 1 : 0;
  to.total_bytes = from.identity.total_bytes;
  to.messages = from.messages;
  to.delivered_bytes = from.delivered_bytes;
  to.missing_bytes = from.missing_bytes;
  to.eligible_bytes = from.eligible_bytes;
  to.contributions = from.contributions;
  to.missing_ranges = from.missing_ranges;
  const bool send = from.identity.sender != transport::MessageIdentity::kNoRank;
  to.sender = send ? std::int32_t{from.identity.sender} : -1;
  to.ranks = 0;
  std::fill(std::begin(to.comm_name), std::end(to.comm_name), '\0');
  if (const auto comm = process_registry().find(from.identity.communicator)) {
    to.ranks = comm->ranks;
    comm->name.copy(to.comm_name, sizeof to.comm_name - 1);
  }
}

int get_totals(clustarTotals_v1* out) {
  return api_call([&] {
    if (out == nullptr || out->size != sizeof *out) return CLUSTAR_EINVAL;
    const ReceptionBook::Totals received = process_receptions().totals();
    const SendCounters& sent = process_sends();
    out->delivered_bytes = received.delivered_bytes;
    out->missing_bytes = received.missing_bytes;
    out->eligible_bytes = received.eligible_bytes;
    out->sent_messages = sent.sent();
    out->identified_messages = sent.identified();
    out->tolerant_messages = sent.of(Reason::kLossy);
    return CLUSTAR_OK;
  });
}

int get_reason(std::uint32_t index, const char** name, std::uint64_t* messages) {
  return api_call([&] {
    if (name == nullptr || messages == nullptr) return CLUSTAR_EINVAL;
    // Reason 0 is none: those messages may lose.
    if (index >= kReasons - 1) return CLUSTAR_ENOTFOUND;
    const auto reason = static_cast<Reason>(index + 1);
    *name = name_of(reason);
    *messages = process_sends().of(reason);
    return CLUSTAR_OK;
  });
}

int get_collective(std::uint64_t comm_id, std::uint8_t function, std::uint8_t local_number, std::uint64_t number,
                   clustarCollective_v1* out) {
  return api_call([&] {
    if (out == nullptr || out->size != sizeof *out || local_number > 1) return CLUSTAR_EINVAL;
    const auto found = process_receptions().find({comm_id, number, function, local_number == 1});
    if (!found) return CLUSTAR_ENOTFOUND;
    fill(*found, *out);
    return CLUSTAR_OK;
  });
}

int list_collectives(clustarCollective_v1* out, std::size_t capacity, std::size_t* count) {
  return api_call([&] {
    if (count == nullptr || (out == nullptr && capacity > 0)) return CLUSTAR_EINVAL;
    for (std::size_t i = 0; i < capacity; ++i) {
      if (out[i].size != sizeof *out) return CLUSTAR_EINVAL;
    }
    const auto newest = process_receptions().list(capacity);
    for (std::size_t i = 0; i < newest.size(); ++i) fill(newest[i], out[i]);
    *count = newest.size();
    return CLUSTAR_OK;
  });
}

// `partly`: what is left of the ranges is welcome, too.
int list_holes(const ReceptionBook& book, const CollectiveKey& key, bool partly, clustarMissing_v1* out,
               std::size_t capacity, std::size_t* count) {
  return api_call([&] {
    if (count == nullptr || (out == nullptr && capacity > 0)) return CLUSTAR_EINVAL;
    for (std::size_t i = 0; i < capacity; ++i) {
      if (out[i].size != sizeof *out) return CLUSTAR_EINVAL;
    }
    const auto holes = book.holes(key);
    if (!holes) return CLUSTAR_ENOTFOUND;
    if (holes->kept.size() < holes->all && !partly) return CLUSTAR_EFORGOTTEN;
    for (std::size_t i = 0; i < std::min(capacity, holes->kept.size()); ++i) {
      const Hole& hole = holes->kept[i];
      out[i] = {sizeof *out, hole.channel, hole.loop, hole.stage, hole.slice, hole.offset, hole.bytes};
    }
    *count = holes->kept.size();
    return CLUSTAR_OK;
  });
}

int list_missing(std::uint64_t comm_id, std::uint8_t function, std::uint8_t local_number, std::uint64_t number,
                 clustarMissing_v1* out, std::size_t capacity, std::size_t* count) {
  if (local_number > 1) return CLUSTAR_EINVAL;
  return list_holes(process_receptions(), {comm_id, number, function, local_number == 1}, true, out, capacity, count);
}

// Of the `number`-th send between this process and rank `peer`.
int list_holes_of_send(const ReceptionBook& book, std::uint64_t comm_id, std::uint32_t peer, std::uint64_t number,
                       clustarMissing_v1* out, std::size_t capacity, std::size_t* count) {
  // No send has the number that is no rank's.
  constexpr std::uint32_t kNoRank = transport::MessageIdentity::kNoRank;
  const auto rank = static_cast<std::uint16_t>(std::min(peer, kNoRank));
  return list_holes(book, {comm_id, number, nccl_abi::kSend, true, rank}, false, out, capacity, count);
}

int list_missing_from(std::uint64_t comm_id, std::uint32_t sender, std::uint64_t number, clustarMissing_v1* out,
                      std::size_t capacity, std::size_t* count) {
  return list_holes_of_send(process_exchanges(), comm_id, sender, number, out, capacity, count);
}

int list_lost_to(std::uint64_t comm_id, std::uint32_t receiver, std::uint64_t number, clustarMissing_v1* out,
                 std::size_t capacity, std::size_t* count) {
  return list_holes_of_send(process_losses(), comm_id, receiver, number, out, capacity, count);
}

// DBLP (arXiv 2605.01989): the phase is critical while the norm falls by `drop` of itself between two reports. Of ranks
// that are threads of one process all but the first repeat a norm, which changes nothing.
void report_norm(double norm, double drop) {
  static std::mutex mutex;
  static double last = 0;
  const std::lock_guard lock(mutex);
  if (norm == last) return;
  critical_phase().store(last > 0 && (last - norm) / last >= drop, std::memory_order_relaxed);
  last = norm;
}

int report_gradient_norm(double norm) {
  return api_call([&] {
    if (!std::isfinite(norm) || norm <= 0) return CLUSTAR_EINVAL;
    const auto plugin = current_plugin();
    const double drop = plugin ? plugin->policy().critical_drop() : LossPolicy().critical_drop();
    report_norm(norm, drop);
    return CLUSTAR_OK;
  });
}

int set_critical(int critical) {
  if (critical != 0 && critical != 1) return CLUSTAR_EINVAL;
  critical_phase().store(critical == 1, std::memory_order_relaxed);
  return CLUSTAR_OK;
}

int identify(int (*callback)(void**, int, void*, std::int64_t, void*), void* phandle, clustarMessage_v1* out) {
  return api_call([&] {
    if (callback == nullptr || out == nullptr || out->size != sizeof *out) return CLUSTAR_EINVAL;
    const MessageQuery query = ask(callback, phandle);
    const transport::MessageIdentity& identity = query.identity;
    if (!identity.known) return CLUSTAR_ENOTFOUND;
    const bool simple_ring = identity.algorithm == nccl_abi::kRing && identity.protocol == nccl_abi::kSimple;
    const auto phase = simple_ring
                           ? phase_of(identity.function, query.facts.ranks, query.facts.transfers, query.facts.transfer)
                           : std::nullopt;
    *out = clustarMessage_v1{
        .size = sizeof *out,
        .comm_id = identity.communicator,
        .number = identity.number,
        .total_bytes = identity.total_bytes,
        .ranks = query.facts.ranks,
        .channel = identity.channel,
        .transfer = identity.transfer,
        .transfers = query.facts.transfers,
        .loop = phase ? phase->loop : 0,
        .stage = phase ? phase->stage : 0,
        .slice = phase ? phase->slice : 0,
        .function = identity.function,
        .datatype = identity.datatype,
        .algorithm = identity.algorithm,
        .protocol = identity.protocol,
        .local_number = static_cast<std::uint8_t>(identity.local_number ? 1 : 0),
        .has_phase = static_cast<std::uint8_t>(phase ? 1 : 0),
        .reducing = static_cast<std::uint8_t>(phase && phase->reducing ? 1 : 0),
    };
    return CLUSTAR_OK;
  });
}

}  // namespace
}  // namespace clustar::nccl_plugin

using namespace clustar::nccl_plugin;

extern "C" __attribute__((visibility("default"))) const clustarApi_v1_t clustarApi_v1 = {
    .size = sizeof(clustarApi_v1_t),
    .version = CLUSTAR_VERSION,
    .getTotals = get_totals,
    .getReason = get_reason,
    .getCollective = get_collective,
    .listCollectives = list_collectives,
    .listMissing = list_missing,
    .listMissingFrom = list_missing_from,
    .listLostTo = list_lost_to,
    .reportGradientNorm = report_gradient_norm,
    .setCritical = set_critical,
    .identify = identify,
};
