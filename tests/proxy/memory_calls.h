// The calls of the memory plugin (memory_plugin.cc) in one shape; memory_tables.cc gives them those of each table.
#pragma once

#include <cstddef>

#include "nccl_plugin/abi/tables.h"

namespace clustar::tests::memory {

using namespace nccl_abi;  // NOLINT: both files speak this ABI

// What a library made of this plugin and more does beside it. Null: nothing.
struct Hooks {
  void (*called)(const char* call) = nullptr;  // at the start of each call
  void (*given)(ProfilerCallback callback) = nullptr;
  // An isend or irecv of v10 and later was accepted.
  void (*posted)(bool is_send, int n, void** phandles) = nullptr;
};
Hooks& hooks();

struct Context;
Context* shared_context();  // of the versions without one

void note_traffic_class(int traffic_class);
void note_violation(const char* text);
int max_recvs();

int init(DebugLogger logger);
int init_context(void** ctx, DebugLogger logger);
int finalize(void* ctx);
int devices(int* count);
int get_properties();
int listen(Context* context, void* handle, void** listen_comm);
int connect(Context* context, void* handle, void** send_comm);
int accept(void* listen_comm, void** recv_comm);
int reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle);
int dereg_mr(void* comm, void* mhandle);
int isend(void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request);
int irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request);
int iflush(void* comm, int n, void** data, int* sizes, void** mhandles, void** request);
int test(void* request, int* done, int* sizes);
int close_send(void* comm);
int close_recv(void* comm);
int close_listen(void* listen_comm);
int set_net_attr(void* ctx, NetAttr* attr);

}  // namespace clustar::tests::memory
