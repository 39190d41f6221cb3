// NCCL's side of the profiler in tests: one communicator's events with the layout of a version.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

#include "nccl_plugin/profiler/profiler.h"

namespace clustar::nccl_plugin {

struct TestCollective {
  const char* func = "AllReduce";
  std::uint64_t number = 0;
  std::uint64_t count = 1 << 20;
  const char* datatype = "ncclFloat32";
  const char* algo = "RING";
  const char* proto = "SIMPLE";
};

class TestComm {
 public:
  TestComm(Profiler& profiler, int version) : profiler_(profiler), version_(version) {}

  void open(const Profiler::Opening& opening) {
    const auto opened = profiler_.open(opening, &mask);
    context = opened ? *opened : nullptr;
  }

  void* coll_api(bool captured) {
    auto event = blank(nccl_abi::kEventCollApi, nullptr);
    event.coll_api.func = "AllReduce";
    event.coll_api.graph_captured = captured;
    return start(event);
  }
  void* coll(const TestCollective& collective, void* api, void* group = nullptr) {
    auto event = blank(nccl_abi::kEventColl, api);
    event.coll.seq_number = collective.number;
    event.coll.func = collective.func;
    event.coll.count = collective.count;
    event.coll.datatype = collective.datatype;
    event.coll.algo = collective.algo;
    event.coll.proto = collective.proto;
    event.coll.parent_group = group;
    return start(event);
  }
  void* p2p_api(bool captured) {
    auto event = blank(nccl_abi::kEventP2pApi, nullptr);
    event.p2p_api.func = "Send";
    event.p2p_api.graph_captured = captured;
    return start(event);
  }
  void* p2p(const char* func, std::uint64_t count, int peer = 1, void* api = nullptr,
            const char* datatype = "ncclInt8") {
    auto event = blank(nccl_abi::kEventP2p, api);
    event.p2p.func = func;
    event.p2p.count = count;
    event.p2p.datatype = datatype;
    event.p2p.peer = peer;
    event.p2p.channels = 2;
    return start(event);
  }
  void* op(void* parent, int steps, std::uint8_t channel = 0, int pid = ::getpid(), bool send = true) {
    auto event = blank(nccl_abi::kEventProxyOp, parent);
    event.proxy_op.pid = pid;
    event.proxy_op.channel = channel;
    event.proxy_op.peer = 1;
    event.proxy_op.steps = steps;
    event.proxy_op.is_send = send ? 1 : 0;
    return start(event);
  }
  void* step(void* parent, int number) {
    auto event = blank(nccl_abi::kEventProxyStep, parent);
    event.proxy_step.step = number;
    return start(event);
  }
  // What the net plugin asks for a step; `handle` receives what it would have to stop.
  MessageQuery ask(void* parent, void** handle = nullptr) {
    MessageQuery query;
    query.facts.size = 77;
    auto event = blank(nccl_abi::kEventNetPlugin, parent);
    event.net_plugin.id = kNetEventId;
    event.net_plugin.data = &query;
    void* const kept = start(event);
    if (handle != nullptr) *handle = kept;
    return query;
  }
  void* plain(std::uint64_t type, void* parent) { return start(blank(type, parent)); }
  void stop(void* handle) { profiler_.stop(handle); }
  void close() { profiler_.close(context); }

  static nccl_abi::EventV6 blank(std::uint64_t type, void* parent) {
    nccl_abi::EventV6 event;
    std::memset(static_cast<void*>(&event), 0, sizeof event);
    event.type = type;
    event.parent = parent;
    return event;
  }
  void* start(const nccl_abi::EventV6& event) {
    void* handle = &mask;  // what a caller left there
    if (version_ == 6) {
      profiler_.start(context, &handle, read_event(event));
    } else if (version_ == 5) {
      nccl_abi::EventV5 older;
      std::memcpy(static_cast<void*>(&older), &event, sizeof older);
      profiler_.start(context, &handle, read_event(older));
    } else {
      profiler_.start(context, &handle, read_event(to_v4(event)));
    }
    return handle;
  }

  void* context = nullptr;
  int mask = 0;

 private:
  static nccl_abi::EventV4 to_v4(const nccl_abi::EventV6& event) {
    nccl_abi::EventV4 older;
    std::memset(static_cast<void*>(&older), 0xa5, sizeof older);  // padding holds anything
    older.type = static_cast<std::uint8_t>(event.type);
    older.parent = event.parent;
    older.rank = event.rank;
    if (event.type == nccl_abi::kEventColl) older.parent = event.coll.parent_group;
    if (event.type == nccl_abi::kEventP2p) older.parent = event.p2p.parent_group;
    // The parts that v4 has too begin alike.
    std::memcpy(static_cast<void*>(&older.coll), &event.coll, sizeof older.coll);
    return older;
  }

  Profiler& profiler_;
  const int version_;
};

}  // namespace clustar::nccl_plugin
