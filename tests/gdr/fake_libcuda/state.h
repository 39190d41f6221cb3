// What the fake driver knows, behind one mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

struct CUctx_st {
  int device;
  bool primary;
};
struct CUevent_st {
  std::uint64_t recorded = 0;  // how often
  std::uint64_t reached = 0;
};
struct CUstream_st {
  // Copies and the events behind them, in order. An event's element has no work.
  struct Element {
    std::function<void()> work;
    CUevent event;
  };
  std::deque<Element> queue;
  unsigned polls = 0;
};

namespace clustar::tests {

struct FakeMemory {
  std::string name;
  std::byte* base = nullptr;
  std::size_t size = 0;
  std::string type = "device";  // device, host, managed; none: CUDA does not know it
  int device = 0;
  std::map<int, int> attributes;  // by number; an attribute that is not here is an error
  std::size_t piece = 0;          // what cuMemGetAddressRange tells; 0: all of it
  CUcontext context = nullptr;
  bool sync_memops = false;
};

struct FakeDevice {
  std::string address;
  std::map<int, int> attributes;
  CUctx_st primary{0, true};
  int retained = 0;
  bool active = false;  // by others, whatever is retained here
};

// Answers of a function, for calls that fit; the last repeats.
struct FakeAnswer {
  std::string function;
  std::string memory;
  long long flags = -1;
  std::deque<CUresult> results;
};

struct FakeState {
  std::recursive_mutex mutex;
  bool loaded = false;
  int version = 12080;
  unsigned latency = 2;  // queries until one more element of a stream is done
  CUresult when_full = CUDA_ERROR_OPERATING_SYSTEM;
  std::deque<FakeDevice> devices;
  std::list<FakeMemory> memories;
  std::list<CUctx_st> own_contexts;
  std::list<FakeAnswer> answers;
  std::map<std::string, std::size_t> calls;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  bool held = false;
  CUresult copies_fail = CUDA_SUCCESS;
  bool capturing = false;        // somebody, in global mode
  CUresult dead = CUDA_SUCCESS;  // every call of a context that a copy has broken
  std::string misuse;

  FakeMemory* holding(CUdeviceptr address, std::size_t bytes = 1);
  CUresult misused(const std::string& what, CUresult result);
};

FakeState& fake_state();
// Empty, or what is wrong. The state's mutex is held.
std::string load_fixture(FakeState& state, const std::string& path);
std::string add_answer(FakeState& state, const std::string& function, const std::string& rest);
CUresult result_named(const std::string& name);  // CUDA_ERROR_UNKNOWN's number is only its own
const char* name_of_result(CUresult result);     // null: no such
std::vector<CUcontext>& pushed();                // of this thread
CUstreamCaptureMode& capture_mode();             // of this thread

// A call: counted, and answered by the fixture if it says so.
class FakeCall {
 public:
  explicit FakeCall(const char* function, CUdeviceptr address = 0, long long flags = -1);
  // Whether the fixture answers; then answer() is all that the call does. Success means: as if it said nothing.
  bool refused() const { return answer_ != CUDA_SUCCESS; }
  CUresult answer() const { return answer_; }
  FakeState& state() { return state_; }

 private:
  FakeState& state_;
  std::lock_guard<std::recursive_mutex> lock_;
  CUresult answer_ = CUDA_SUCCESS;
};

}  // namespace clustar::tests
