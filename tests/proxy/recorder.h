// The control of the recording plugin.
#pragma once

#include <dlfcn.h>

#include "tests/proxy/plugins.h"
#include "tests/proxy/ranks.h"
#include "tests/proxy/recording_plugin.h"

namespace clustar::bench::proxy {

// Kept open for the whole process, so that its statics are one set.
inline tests::RecordingControl& recorder() {
  static void* library = dlopen(PROXY_TEST_RECORDING_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  static auto* control = static_cast<tests::RecordingControl*>(dlsym(library, "recording_control"));
  return *control;
}

}  // namespace clustar::bench::proxy
