/* clustar's C API. It tells what the plugin knows about your collectives, and takes what only you can tell it.
 *
 * NCCL has already loaded the plugin into your process. Get the table from that copy, so that nothing is loaded twice:
 *
 *   void* plugin = dlopen("libnccl-net-clustar.so", RTLD_NOW | RTLD_NOLOAD);   (or the plugin's path)
 *   const clustarApi_v1_t* api = dlsym(plugin, "clustarApi_v1");
 *
 * Versions: a released table never changes. New functions go into another, clustarApi_v2, which is exported beside it.
 *
 * Every function may be called from any thread and never blocks on the network. It returns 0 or one of CLUSTAR_E*, and
 * writes nothing on error. The caller sets `size` in every struct, and in every element of an array, to the size of the
 * struct. CLUSTAR_EINVAL: `size` is wrong, or a required pointer is null.
 *
 * Functions, algorithms, protocols and datatypes are NCCL's numbers (ncclFunc_t, NCCL_ALGO_*, NCCL_PROTO_*,
 * ncclDataType_t); 255 means unknown. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLUSTAR_OK 0
#define CLUSTAR_EINVAL 1    /* a null pointer, a wrong `size`, or a value out of range */
#define CLUSTAR_ENOTFOUND 2 /* not seen in this process, or too long ago */
#define CLUSTAR_ENOMEM 3
#define CLUSTAR_EFORGOTTEN 4 /* it was known, but is no longer */

/* Totals of this process since the plugin was loaded. Bytes count receives. */
typedef struct {
  size_t size;
  uint64_t delivered_bytes; /* arrived from the network, over all receives */
  uint64_t missing_bytes;   /* lost; they read as zero */
  uint64_t eligible_bytes;  /* of messages that were allowed to lose some */
  uint64_t sent_messages;
  uint64_t identified_messages; /* sent messages whose collective is known */
  uint64_t tolerant_messages;   /* sent messages that were allowed to lose some */
} clustarTotals_v1;

/* What this process received of one collective. */
typedef struct {
  size_t size;
  uint64_t comm_id; /* NCCL's commHash */
  uint64_t number;  /* counts calls of this function in the communicator; see local_number */
  uint8_t function;
  uint8_t datatype;
  uint8_t algorithm;
  uint8_t protocol;
  uint8_t
      local_number; /* 1: the sending rank counts `number`: its sends to this rank (p2p), or starts of CUDA graphs */
  uint64_t total_bytes; /* input of one rank */
  uint64_t messages;
  uint64_t delivered_bytes;
  uint64_t missing_bytes;
  uint64_t eligible_bytes;
  uint64_t contributions;  /* missing bytes times the number of ranks summed in them: what the loss ledger is charged */
  uint32_t missing_ranges; /* number of clustarMissing_v1 that occurred, including those no longer kept */
  uint32_t ranks;          /* size of the communicator; 0 = no longer known */
  char comm_name[64];      /* ncclConfig_t.commName, cut to 63 characters; "" = none, or no longer known */
  int32_t sender;          /* of a send (p2p): the rank that sent it and counts `number`; otherwise -1 */
} clustarCollective_v1;

/* A range that was lost and reads as zero. A plugin does not know the order of the ring, so this locates the range in
 * the collective's traffic, not among its elements. */
typedef struct {
  size_t size;
  uint32_t channel;
  uint32_t loop;
  uint32_t stage; /* step k of the reduce-scatter: the bytes carried the sum of k + 1 ranks */
  uint32_t slice;
  uint64_t offset; /* within the message */
  uint64_t bytes;
} clustarMissing_v1;

/* Which part of which collective a network transfer is. */
typedef struct {
  size_t size;
  uint64_t comm_id;
  uint64_t number; /* as in clustarCollective_v1 */
  uint64_t total_bytes;
  uint32_t ranks;
  uint32_t channel;
  uint32_t transfer;           /* t, from 0 */
  uint32_t transfers;          /* in the channel's proxy operation */
  uint32_t loop, stage, slice; /* valid if has_phase is 1 */
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
  /* The name of reason `index` (from 0), and how many sent messages were reliable because of it. CLUSTAR_ENOTFOUND:
   * there are fewer reasons. */
  int (*getReason)(uint32_t index, const char** name, uint64_t* messages);
  /* CLUSTAR_ENOTFOUND: this process received nothing of it, or newer collectives took its place. It is also returned
   * for a send (p2p), because several ranks use the same number: use listCollectives or listMissingFrom. */
  int (*getCollective)(uint64_t comm_id, uint8_t function, uint8_t local_number, uint64_t number,
                       clustarCollective_v1* out);
  /* The newest `capacity` collectives of which this process received something, newest first; *count is set to how many
   * were written. 4,096 are kept; where numbers collide in the table, an older one may be dropped earlier. */
  int (*listCollectives)(clustarCollective_v1* out, size_t capacity, size_t* count);
  /* The ranges that a collective lost in this process, in order of arrival. *count is set to the number of ranges; at
   * most `capacity` are written. The newest 65,536 of the process are kept. CLUSTAR_ENOTFOUND: as above. */
  int (*listMissing)(uint64_t comm_id, uint8_t function, uint8_t local_number, uint64_t number, clustarMissing_v1* out,
                     size_t capacity, size_t* count);
  /* For programs that exchange gradients with ncclSend and ncclRecv and add them up themselves (an all-to-all
   * all-reduce): the bytes of a send that read as zero here. The send is the `number`-th (from 0) of rank `sender` to
   * this process in the communicator. In each clustarMissing_v1, `loop` and `stage` are 0 and `slice` is the network
   * transfer within the channel, from 0; order, *count and `capacity` are as above.
   *
   * The answer is complete once the receive is done; ask soon afterwards. CLUSTAR_ENOTFOUND: the send was never allowed
   * to lose, or about 4,096 newer sends that were have taken its place. CLUSTAR_EFORGOTTEN: it lost bytes, but 65,536
   * newer ranges have replaced the record. For processes with one rank of the communicator only: the ranges of several
   * ranks would be mixed. */
  int (*listMissingFrom)(uint64_t comm_id, uint32_t sender, uint64_t number, clustarMissing_v1* out, size_t capacity,
                         size_t* count);
  /* The same for the `number`-th send of this process to rank `receiver`: the bytes that the receiver did not get, so
   * that the caller can add them to its next send (a residual). Complete once the send is done. */
  int (*listLostTo)(uint64_t comm_id, uint32_t receiver, uint64_t number, clustarMissing_v1* out, size_t capacity,
                    size_t* count);
  /* Reports the norm of the gradient after the latest step; CLUSTAR_EINVAL unless it is finite and above 0. If it fell
   * by loss_critical_drop (0.5 = half) or more since the last different norm, the phase is critical until the next
   * report: collectives that start in it lose at most loss_critical_tolerance (DBLP, arXiv 2605.01989). A process has
   * one phase. Call it on every rank after the same step, before the next collective. Where NCCL starts collectives
   * from a callback of its own (after a graph capture), ranks may see the change at different collectives; then the
   * smaller p holds. */
  int (*reportGradientNorm)(double norm);
  /* Sets the phase directly: 1 critical, 0 not; CLUSTAR_EINVAL for any other value. */
  int (*setCritical)(int critical);
  /* For net plugins that wrap this one, and for tests: identifies the transfer for which NCCL passed `phandle` to
   * isend. `callback` is the profiler callback (ncclProfilerCallback_t) that NCCL passed to the net plugin's init. Call
   * it on the thread and at the place where isend is called. CLUSTAR_ENOTFOUND: not identified. */
  int (*identify)(int (*callback)(void** event, int type, void* phandle, int64_t plugin_id, void* data), void* phandle,
                  clustarMessage_v1* out);
} clustarApi_v1_t;

extern const clustarApi_v1_t clustarApi_v1;

/* What became of the marks of this process since its first communicator. */
typedef struct {
  size_t size;
  uint64_t ranges;          /* marked as of now */
  uint64_t messages;        /* sent from marked memory, with losses allowed */
  uint64_t bytes;           /* of these messages */
  uint64_t important_bytes; /* of them, as they were marked; whole packets are kept, so somewhat more is */
} clustarImportance_v1;

/* The limits of markImportance. */
#define CLUSTAR_MOST_BLOCKS 1048576 /* of one call */
#define CLUSTAR_MOST_RANGES 4096    /* of all, of at most 16 * CLUSTAR_MOST_BLOCKS; the oldest are forgotten first */

typedef struct {
  size_t size;               /* of this table */
  const clustarApi_v1_t* v1; /* everything else */
  /* Tells which data is important. Where losses are allowed (docs/loss.md), no packet with a byte of an important
   * block is ever missing; all others may be, and CLUSTAR_LOSS_IMPORTANT does not apply to the message. The memory, a
   * GPU's or the host's, is never read here: compute the marks where the data is, and call this before the stream
   * reaches the sends that they are for.
   *
   * Block i is the `block_bytes` bytes from `buffer` + i * `block_bytes` on, the last one cut at `bytes`;
   * important[i] is 1 or 0. `blocks` says how many there are: bytes / block_bytes, rounded up. The array is copied.
   *
   * Marks hold for all sends from this memory until it is marked again (a range that shares a byte with the new one
   * is forgotten as a whole), forgetImportance, 60 s have passed, or newer ones have passed the limits named with
   * CLUSTAR_MOST_BLOCKS, to which copies count, too, that the plugin makes of marked memory (CLUSTAR_GDR=staged).
   *
   * Addresses are compared with what NCCL has the plugin send. NCCL sends from `buffer` itself where it is registered
   * with NCCL (ncclCommRegister) and the operation is a send; rings, and sends of other memory, go by buffers of NCCL's
   * own, and nothing is found: `messages` of getImportance then stays 0.
   *
   * CLUSTAR_EINVAL: `buffer` or `important` is null, `bytes` or `block_bytes` is 0, `blocks` is not what they give, or
   * more than CLUSTAR_MOST_BLOCKS, a mark is neither 0 nor 1, or the range passes the end of all addresses.
   * CLUSTAR_ENOTFOUND: no communicator of this process uses the plugin yet. Nothing is marked then. */
  int (*markImportance)(const void* buffer, size_t bytes, size_t block_bytes, const uint8_t* important, size_t blocks);
  /* Forgets every range that shares a byte with this one: before the memory is given back. Null and 0: all ranges.
   * CLUSTAR_EINVAL: only one of both is. CLUSTAR_ENOTFOUND: there was none. */
  int (*forgetImportance)(const void* buffer, size_t bytes);
  /* CLUSTAR_ENOTFOUND: no communicator of this process uses the plugin. */
  int (*getImportance)(clustarImportance_v1* out);
} clustarApi_v2_t;

extern const clustarApi_v2_t clustarApi_v2;

#ifdef __cplusplus
}
#endif
