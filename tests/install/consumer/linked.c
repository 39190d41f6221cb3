#include <clustar.h>
#include <stdio.h>

int main(void) {
  printf("%s\n", clustarApi_v1.version);
  return 0;
}
