// A library of its own: the linker takes it only where no other object has the commit.
#include "transport/base/version.h"

extern "C" const char clustar_commit[] = "";
