/* clustar's C API: what the plugin knows of your collectives, and what it lets you tell it.
 *
 * The plugin is already in your process; take its table from there, so that nothing is loaded twice:
 *
 *   void* plugin = dlopen("libnccl-net-clustar.so", RTLD_NOW | RTLD_NOLOAD);   (or its path)
 *   const clustarApi_v1_t* api = dlsym(plugin, "clustarApi_v1");
 *
 * Versions: a table never changes once released; more functions make clustarApi_v2, beside it. Every function may be
 * called from any thread, never blocks on the network, returns 0 or one of CLUSTAR_E*, and writes nothing on error.
 * Structs carry their size in `size`, set by the caller in each element of an array: CLUSTAR_EINVAL unless it is the
 * size of this version's struct. CLUSTAR_EINVAL also where a pointer is null that must not be.
 * Functions, algorithms, protocols and datatypes are NCCL's numbers (ncclFunc_t, NCCL_ALGO_*, NCCL_PROTO_*,
 * ncclDataType_t); 255 = not known. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLUSTAR_OK 0
#define CLUSTAR_EINVAL 1    /* a null pointer, a size that no version has, a value out of range */
#define CLUSTAR_ENOTFOUND 2 /* no such thing: never seen here, or too long ago */
#define CLUSTAR_ENOMEM 3
#define CLUSTAR_EFORGOTTEN 4 /* it was known, and is not any more */

/* Sums of this process since the plugin was loaded. Bytes are those of receives. */
typedef struct {
  size_t size;
  uint64_t delivered_bytes; /* that the network brought, of all receives */
  uint64_t missing_bytes;   /* that read as zero instead */
  uint64_t eligible_bytes;  /* of messages that might have lost some */
  uint64_t sent_messages;
  uint64_t identified_messages; /* of those sent: whose collective is known */
  uint64_t tolerant_messages;   /* of those sent: that may lose */
} clustarTotals_v1;

/* What this process received of one collective. */
typedef struct {
  size_t size;
  uint64_t comm_id; /* NCCL's commHash */
  uint64_t number;  /* of this function in the communicator; see local_number */
  uint8_t function;
  uint8_t datatype;
  uint8_t algorithm;
  uint8_t protocol;
  uint8_t local_number; /* 1: `number` counts on the sending rank: sends to here (p2p), starts of CUDA graphs */
  uint64_t total_bytes; /* of one rank's input */
  uint64_t messages;
  uint64_t delivered_bytes;
  uint64_t missing_bytes;
  uint64_t eligible_bytes;
  uint64_t contributions;  /* missing bytes times the ranks whose sums they carried: the loss ledger's charge */
  uint32_t missing_ranges; /* how many clustarMissing_v1 there were, kept or not */
  uint32_t ranks;          /* of the communicator; 0 = not known any more */
  char comm_name[64];      /* ncclConfig_t.commName, cut to 63 characters; "" = none, or not known any more */
  int32_t sender;          /* of a send (p2p): the rank that sent it, with whose `number` it is one; -1 else */
} clustarCollective_v1;

/* A range that the network lost and that read as zero. A plugin does not know the ring's order, so this says where in
 * the collective's traffic it was, not which elements. */
typedef struct {
  size_t size;
  uint32_t channel;
  uint32_t loop;
  uint32_t stage; /* k of the reduce-scatter: the bytes carried the sums of k + 1 ranks */
  uint32_t slice;
  uint64_t offset; /* within the message */
  uint64_t bytes;
} clustarMissing_v1;

/* Which collective, and what of it, one network transfer is. */
typedef struct {
  size_t size;
  uint64_t comm_id;
  uint64_t number; /* as in clustarCollective_v1 */
  uint64_t total_bytes;
  uint32_t ranks;
  uint32_t channel;
  uint32_t transfer;           /* t, from 0 */
  uint32_t transfers;          /* of the channel's proxy operation */
  uint32_t loop, stage, slice; /* when has_phase */
  uint8_t function;
  uint8_t datatype;
  uint8_t algorithm;
  uint8_t protocol;
  uint8_t local_number;
  uint8_t has_phase; /* 1: a ring all-reduce, reduce-scatter or all-gather in the Simple protocol */
  uint8_t reducing;  /* 1: a reduce-scatter step */
} clustarMessage_v1;

typedef struct {
  size_t size; /* of this table */
  const char* version;
  int (*getTotals)(clustarTotals_v1* out);
  /* How many of the messages sent were reliable for reason `index` (0 ..): its name and count. CLUSTAR_ENOTFOUND past
   * the last. */
  int (*getReason)(uint32_t index, const char** name, uint64_t* messages);
  /* CLUSTAR_ENOTFOUND: nothing of it was received here, or newer collectives took its place; or it is a send, whose
   * number several ranks have: listCollectives, listMissingFrom. */
  int (*getCollective)(uint64_t comm_id, uint8_t function, uint8_t local_number, uint64_t number,
                       clustarCollective_v1* out);
  /* The newest `capacity` collectives that this process received of, newest first. *count receives how many. 4,096 are
   * kept; of collectives whose numbers happen to collide an older one may go before. */
  int (*listCollectives)(clustarCollective_v1* out, size_t capacity, size_t* count);
  /* The ranges that a collective lost here, in order of arrival; *count receives how many there are, of which at most
   * `capacity` were written. The newest 65,536 of the process are kept. CLUSTAR_ENOTFOUND as above. */
  int (*listMissing)(uint64_t comm_id, uint8_t function, uint8_t local_number, uint64_t number, clustarMissing_v1* out,
                     size_t capacity, size_t* count);
  /* For who exchanges gradients by send and receive and adds them up himself (an all-to-all all-reduce): which bytes of
   * the `number`-th send (from 0) of rank `sender` to this process in the communicator read as zero. Of a
   * clustarMissing_v1 `loop` and `stage` are 0 and `slice` is the network transfer of the channel, from 0; order,
   * *count and capacity as above. Complete once the receive is done; ask soon. CLUSTAR_ENOTFOUND: it never might lose,
   * or some 4,096 sends that might came since. CLUSTAR_EFORGOTTEN: it lost some, but 65,536 newer ranges drove out
   * where. Only for processes with one rank of the communicator: of several the ranges would be mixed. */
  int (*listMissingFrom)(uint64_t comm_id, uint32_t sender, uint64_t number, clustarMissing_v1* out, size_t capacity,
                         size_t* count);
  /* The same of the `number`-th send of this process to rank `receiver`: which bytes that one does without, so that the
   * caller can add them to what he sends next (a residual). Complete once the send is done. */
  int (*listLostTo)(uint64_t comm_id, uint32_t receiver, uint64_t number, clustarMissing_v1* out, size_t capacity,
                    size_t* count);
  /* The norm of the gradient after the latest step; CLUSTAR_EINVAL unless finite and > 0. A fall by loss_critical_drop
   * (0.5 = half) since the last different norm makes the phase critical until the next one: collectives that start then
   * lose loss_critical_tolerance at most (DBLP, arXiv 2605.01989). The phase is the process's. Call it on every rank
   * after the same step, before its next collective; where NCCL starts collectives from a callback of its own (after a
   * graph was captured) ranks may see the change at different collectives, of which the smaller p then holds. */
  int (*reportGradientNorm)(double norm);
  /* The same decided by yourself: 1 critical, 0 not; else CLUSTAR_EINVAL. */
  int (*setCritical)(int critical);
  /* For net plugins that wrap this one, and for tests: whose transfer it is that NCCL gave `phandle` for, in isend.
   * `callback` is the profiler callback (ncclProfilerCallback_t) that NCCL gave to the net plugin's init. Call it where
   * isend is called, in that thread. CLUSTAR_ENOTFOUND: not identified. */
  int (*identify)(int (*callback)(void** event, int type, void* phandle, int64_t plugin_id, void* data), void* phandle,
                  clustarMessage_v1* out);
} clustarApi_v1_t;

extern const clustarApi_v1_t clustarApi_v1;

#ifdef __cplusplus
}
#endif
