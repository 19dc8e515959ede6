/* How much of the stack something takes: it runs on one of its own, which is filled beforehand. */
#pragma once
#include <string.h>
#include <ucontext.h>

static unsigned stack_taken(void (*act)(void)) {
  enum { BYTES = 256 << 10, UNTOUCHED = 0x5a };
  static unsigned char stack[BYTES];
  ucontext_t here, there;
  memset(stack, UNTOUCHED, BYTES);
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = BYTES;
  there.uc_link = &here;
  makecontext(&there, act, 0);
  swapcontext(&here, &there);
  unsigned left = 0;
  while (left < BYTES && stack[left] == UNTOUCHED) left++;
  return BYTES - left;
}
