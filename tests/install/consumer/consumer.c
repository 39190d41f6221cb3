#include <clustar.h>
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void* plugin = dlopen(PLUGIN, RTLD_NOW);
  const clustarApi_v1_t* api = plugin ? dlsym(plugin, "clustarApi_v1") : NULL;
  clustarTotals_v1 totals = {.size = sizeof totals};
  if (!api || api->getTotals(&totals) != CLUSTAR_OK) return 1;
  printf("%s\n", api->version);
  return 0;
}
