/* ParaExpress's C API: collectives of processes on host memory, by the plan that fits the network. No NCCL, no MPI.
 *
 * Link libclustar-paraexpress.so (CMake: clustar::paraexpress; pkg-config: clustar-paraexpress). What it sends over,
 * and all else that is a setting, comes from the environment as for the plugin (CLUSTAR_TRANSPORT, ...).
 *
 * Strict: every rank gets the same bits or an error that names who is to blame. After an error of an operation the
 * communicator is of no further use: finalize it. Starts must come in the same order on all ranks.
 *
 * Every function may be called from any thread. It returns CLUSTARPX_OK or one of CLUSTARPX_E*;
 * clustarPxLastError() says more, of the calling thread. Handles are numbers, never reused in a process: one that has
 * ended is CLUSTARPX_EINVAL. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLUSTARPX_OK 0
#define CLUSTARPX_EINVAL 1  /* an argument that is not allowed: the text says what is */
#define CLUSTARPX_EUSAGE 2  /* not now, or ranks that do different things */
#define CLUSTARPX_ESYSTEM 3 /* this machine: memory, descriptors, no device */
#define CLUSTARPX_EREMOTE 4 /* another process or its host */
#define CLUSTARPX_EINTERNAL 5

/* NCCL's numbers (ncclDataType_t, ncclRedOp_t). */
#define CLUSTARPX_INT8 0
#define CLUSTARPX_UINT8 1
#define CLUSTARPX_INT32 2
#define CLUSTARPX_UINT32 3
#define CLUSTARPX_INT64 4
#define CLUSTARPX_UINT64 5
#define CLUSTARPX_FLOAT16 6
#define CLUSTARPX_FLOAT32 7
#define CLUSTARPX_FLOAT64 8
#define CLUSTARPX_BFLOAT16 9
#define CLUSTARPX_SUM 0
#define CLUSTARPX_MAX 2

typedef uint64_t clustarPx_t;          /* a communicator */
typedef uint64_t clustarPxOperation_t; /* a started operation */

typedef struct {
  size_t size; /* of this struct */
  int rank;    /* 0 .. ranks - 1 */
  int ranks;   /* 1 .. 256 */
  /* HOST:PORT of rank 0, which listens there while all meet: a port per communicator. Or null, and `hosts`:
   * "HOST[:PORT],HOST,...", a host per rank, of which the first is rank 0's (port 29555 unless it says one). One rank
   * alone needs neither. Nothing there authenticates who comes: keep the port within the job's network. */
  const char* root;
  const char* hosts;
  /* Null: all ranks in one region; "probe": found by measuring; otherwise a region map's text, a line per region, as
   * "rack0 ranks=0-3 oversubscription=4". */
  const char* regions;
  const char* plan; /* null: chosen by the size; or direct, ring, double-tree, hierarchical, server, sharded */
  int helpers;      /* processes `clustar aggregator --root` of the same HOST:PORT, 0 .. 64 */
  int stall_ms;     /* how long an operation may stand still; 0: 60,000 */
} clustarPxOptions_v1;

/* Blocks until all ranks (and helpers) have met and measured the network, 30 s at most for the meeting. Helpers that do
 * not come within 15 s, or are lost meanwhile, are left out. */
int clustarPxInit(const clustarPxOptions_v1* options, clustarPx_t* out);
/* Memory that operations may use, whole or in parts; until clustarPxFinalize(). */
int clustarPxRegister(clustarPx_t comm, void* memory, size_t bytes);

/* Each starts an operation on registered memory, in place; that is left alone until its clustarPxWait() returns.
 * What cannot be done (memory, datatype, root) fails all ranks, as the others would take the next operation for it. */
int clustarPxAllReduce(clustarPx_t comm, void* elements, size_t count, int datatype, int reduction,
                       clustarPxOperation_t* out);
/* `ranks` blocks of `count` elements: afterwards the one of the own number has the reduction, the others nothing of
 * use. */
int clustarPxReduceScatter(clustarPx_t comm, void* blocks, size_t count, int datatype, int reduction,
                           clustarPxOperation_t* out);
/* `ranks` blocks of `bytes`: each rank brings the one of its number. */
int clustarPxAllGather(clustarPx_t comm, void* blocks, size_t bytes, clustarPxOperation_t* out);
int clustarPxBroadcast(clustarPx_t comm, void* memory, size_t bytes, int root, clustarPxOperation_t* out);
/* An all-reduce in two halves: after the push the sums are spread over the ranks, after the pull all have them. In
 * between the memory may be used for nothing but its pull. */
int clustarPxPush(clustarPx_t comm, void* elements, size_t count, int datatype, int reduction,
                  clustarPxOperation_t* out);
int clustarPxPull(clustarPx_t comm, void* elements, size_t count, int datatype, clustarPxOperation_t* out);

/* *done: 1 if clustarPxWait() does not block any more, otherwise 0. */
int clustarPxTest(clustarPxOperation_t operation, int* done);
/* Blocks until it has ended; its own error, if it failed. The handle has ended then. */
int clustarPxWait(clustarPxOperation_t operation);

/* Waits for the other ranks to be done, 3 s at most. Operations that are not done fail, on all ranks. */
int clustarPxFinalize(clustarPx_t comm);

/* Ranks that join and leave between operations (version CLUSTARPX_2 of the library). Helpers and region maps other than
 * "probe" go by the ranks' numbers: CLUSTARPX_EUSAGE with them, and with a stall_ms below 5,000. */
typedef struct {
  size_t size; /* of this struct; the caller sets it */
  int rank;    /* of now: ranks keep their order, gaps close, newcomers follow */
  int ranks;
  uint64_t epoch; /* another one than before where ranks changed or newcomers were refused, the same on all */
  int left;       /* how many left at this call */
  int joined;     /* and joined */
  int refused; /* newcomers that were tried in vain, as one of them did not come through: the others may come again */
} clustarPxPlace_v1;

/* Every rank calls it at the same place among its operations, after the waits for those before: say after each step of
 * a training, or each hundredth. From that call on all go by the new ranks. Registered memory stays registered; what
 * was pushed must have been pulled. Rank 0 opens the port of clustarPxInit's root for newcomers at its first call.
 * If it cannot, nobody can join, clustarPxLastError() says why, and it tries again at the next call.
 * Where nobody comes or goes it costs an all-reduce of a few bytes. A newcomer that dies or stands still holds all up
 * for 5 s at most in each step of its way in, and is left out; until one got in, one is tried at a time. `out` may be
 * null. */
int clustarPxResize(clustarPx_t comm, clustarPxPlace_v1* out);
/* In the place of clustarPxResize(): the others go on without this rank. Ends the handle. Once it has returned this
 * process may end; if it dies before that, it counts as a rank that died. If rank 0 leaves, the next one opens the
 * port: at root, if that is its host, otherwise at all addresses of its own. */
int clustarPxLeave(clustarPx_t comm);
/* In the place of clustarPxInit(): waits until the ranks of a communicator take it in at a clustarPxResize(), for
 * `wait_ms` at most. `options`: root or hosts say where rank 0 may be: give hosts where it may be on another host than
 * the first one's, as each is tried, at the port of the first. rank says which of this host's devices is used, in turn;
 * ranks and helpers are 0; plan, regions and stall_ms are ignored: the others' count. A try that has begun at the end
 * of wait_ms is carried through. What is to be registered is registered then, before the next operation, which is the
 * first after the others' clustarPxResize(). */
int clustarPxJoin(const clustarPxOptions_v1* options, int wait_ms, clustarPx_t* out, clustarPxPlace_v1* place);

/* Of the last call of this thread that failed; "" before. After a clustarPxResize() that went well: why the port for
 * newcomers is not open on this rank, otherwise "". Valid until this thread's next call. */
const char* clustarPxLastError(void);

#ifdef __cplusplus
}
#endif
