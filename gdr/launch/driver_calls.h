// The CUDA driver's functions that launching needs, by dlopen: no part of CUDA is needed to build this.
#pragma once

#include <cstddef>
#include <string>

#include "transport/base/result.h"

namespace clustar::gdr::launch {

// CUresult, CUdevice and enumerations are int; CUcontext, CUstream, CUmodule and CUfunction void*; CUdeviceptr unsigned
// long long.
struct DriverCalls {
  int (*init)(unsigned) = nullptr;
  int (*get_error_name)(int, const char**) = nullptr;
  int (*device_get_count)(int*) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_get_name)(char*, int, int device) = nullptr;
  int (*device_get_attribute)(int*, int attribute, int device) = nullptr;
  int (*primary_context_retain)(void** context, int device) = nullptr;
  int (*primary_context_release)(int device) = nullptr;
  int (*push)(void* context) = nullptr;
  int (*pop)(void** context) = nullptr;
  int (*memory_allocate)(unsigned long long*, std::size_t) = nullptr;
  int (*memory_free)(unsigned long long) = nullptr;
  int (*copy_to_device)(unsigned long long, const void*, std::size_t, void* stream) = nullptr;
  int (*copy_to_host)(void*, unsigned long long, std::size_t, void* stream) = nullptr;
  int (*copy)(unsigned long long to, unsigned long long from, std::size_t, void* stream) = nullptr;
  int (*fill)(unsigned long long, unsigned, std::size_t, void* stream) = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_query)(void*) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*event_create)(void**, unsigned) = nullptr;
  int (*event_destroy)(void*) = nullptr;
  int (*event_record)(void*, void* stream) = nullptr;
  int (*module_load)(void**, const void* image) = nullptr;
  int (*module_unload)(void*) = nullptr;
  int (*module_function)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                void* stream, void** arguments, void** extra) = nullptr;

  // The library stays open for the life of the process, as the driver's threads do. kUnavailable: it is not there, or
  // lacks a function, which is named.
  static Result<DriverCalls> open(const std::string& library);
};

inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;
inline constexpr unsigned kNonBlocking = 1;
inline constexpr unsigned kDisableTiming = 2;
inline constexpr int kMultiprocessors = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

}  // namespace clustar::gdr::launch
