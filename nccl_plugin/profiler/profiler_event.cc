#include "nccl_plugin/profiler/profiler_event.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

template <class Coll>
void read_collective(const Coll& coll, ProfilerEvent* out) {
  out->number = coll.seq_number;
  out->func = coll.func;
  out->datatype = coll.datatype;
  out->algo = coll.algo;
  out->proto = coll.proto;
  out->count = coll.count;
}

template <class Event>
ProfilerEvent read(const Event& event, int version) {
  ProfilerEvent out;
  out.type = event.type;
  out.parent = event.parent;
  out.version = version;
  out.original = &event;
  switch (out.type) {
    case kEventColl: read_collective(event.coll, &out); break;
    case kEventP2p:
      out.func = event.p2p.func;
      out.datatype = event.p2p.datatype;
      out.count = event.p2p.count;
      out.peer = event.p2p.peer;
      out.channels = event.p2p.channels;
      break;
    case kEventProxyOp:
      out.pid = event.proxy_op.pid;
      out.channel = event.proxy_op.channel;
      out.steps = event.proxy_op.steps;
      out.is_send = event.proxy_op.is_send != 0;
      break;
    case kEventProxyStep: out.step = event.proxy_step.step; break;
    case kEventNetPlugin:
      out.plugin_id = event.net_plugin.id;
      out.data = event.net_plugin.data;
      break;
    default:
      if constexpr (requires { event.coll_api; }) {
        if (out.type == kEventCollApi) out.graph_captured = event.coll_api.graph_captured;
        if (out.type == kEventP2pApi) out.graph_captured = event.p2p_api.graph_captured;
      }
      break;
  }
  return out;
}

}  // namespace

ProfilerEvent read_event(const EventV4& event) { return read(event, 4); }
ProfilerEvent read_event(const EventV5& event) { return read(event, 5); }
ProfilerEvent read_event(const EventV6& event) { return read(event, 6); }

}  // namespace clustar::nccl_plugin
