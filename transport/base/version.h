// What people are told about this build. What must be equal at two ends is CLUSTAR_VERSION alone.
#pragma once

#include <string>

// The commit that the binary was built from, "" when it is not known. Each program, plugin and module links the one
// that the build wrote (packaging/commit.cmake); tests link an empty one, so that a commit does not link them again.
extern "C" const char clustar_commit[];

namespace clustar {

// "0.1.0 (commit 3f2a1b0c9d1e)", or "0.1.0" without a commit.
std::string version_text();

}  // namespace clustar
