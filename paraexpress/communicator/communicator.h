// All operations of a group of ranks, as users of MPI and c10d know them: ParaExpress's collectives by the engine, the
// others and sends and receives by messages between pairs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "paraexpress/communicator/task.h"
#include "paraexpress/engine/engine.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::paraexpress {

struct CommunicatorOptions {
  Member rank = 0;
  std::uint32_t ranks = 1;
  int device = 0;  // of the transport
  std::uint32_t job = 0;
  Duration setup = std::chrono::seconds(60);  // how long ranks wait for each other in create()
};

// Thread rule: any thread, but collectives must be started in the same order on all ranks.
class Communicator {
 public:
  // Blocks until all ranks are connected. The transport outlives it. `all_gather` is called several times, the same
  // number of times on all ranks.
  static Result<std::unique_ptr<Communicator>> create(transport::Transport& transport, const AllGather& all_gather,
                                                      const CommunicatorOptions& options);
  virtual ~Communicator() = default;  // as close()

  // It does not block. The task's functions are called by the communicator's thread.
  virtual void start(Task task) = 0;
  // All tasks end with this error, on the other ranks too.
  virtual void abort(const std::string& why) = 0;
  // Tasks that are under way fail. Then it waits a few seconds for the other ranks to be done too, so that nobody loses
  // what is still on its way. Idempotent.
  virtual void close() = 0;
};

}  // namespace clustar::paraexpress
