// A library with net plugin (the memory plugin), profiler and tuner that writes down what it is told, for tests in the
// same process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace clustar::tests {

enum class Call : std::uint8_t {
  kNet,           // a call of the net plugin: `text` is its name
  kProfilerInit,  // text: the communicator's name
  kStart,
  kStop,
  kState,
  kProfilerFinalize,
  kTunerInit,
  kTunerFinalize,
  kCollInfo,
  kPosted,  // an isend or irecv was accepted
  kMark,    // by the test
};

// Fields that a call does not have are zero.
struct Record {
  Call call = Call::kMark;
  int version = 0;         // of the table
  std::uint64_t comm = 0;  // id
  int rank = -1;           // whose context it is; of the descriptor for kStart
  int comm_rank = -1;      // of the context
  int ranks = 0;
  int nodes = 0;
  std::thread::id thread;
  std::size_t event = 0;   // of kStart, kStop, kState: place of its kStart + 1
  std::size_t parent = 0;  // the same; 0 = none
  std::size_t group = 0;   // parentGroup of a Coll
  std::uint64_t type = 0;
  std::uint64_t number = 0;
  std::string text;  // function of a collective
  std::string datatype, algo, proto;
  std::size_t bytes = 0;  // transferred; of kCollInfo: the size
  std::size_t count = 0;
  int root = 0;
  int channels = 0;
  int channel = 0;
  int peer = 0;
  int steps = 0;
  int pid = 0;
  bool is_send = false;
  int step = 0;
  int state = 0;
  std::int64_t plugin_id = 0;
};

// Exported as the data object `recording_control`.
struct RecordingControl {
  void (*reset)();  // forgets the records and the settings below; no communicator is open
  std::vector<Record> (*records)();
  void (*mark)();
  void (*set_mask)(int mask);                  // what the profiler's init asks for; 0x80 (NetPlugin) at first
  void (*exhaust)(std::uint64_t types);        // events of these types get no handle
  void (*forbid)(unsigned protocols);          // 1 << NCCL_PROTO_*: what the tuner forbids
  void (*fail)(const char* call, int result);  // "profiler_init", "tuner_init", "get_coll_info"
  const char* (*violations)();                 // broken rules: a handle that is no open event, a context that is none
};

}  // namespace clustar::tests
