/* Keeps one core awake without taking it from anybody: the SCHED_IDLE class gives way to everything at once, and a
 * loop of load fences leaves the execution units to the other thread of the same physical core. Ends with its parent.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

int main(void) {
    struct sched_param lowest = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sched_setscheduler(0, SCHED_IDLE, &lowest)) {
        perror("sched_setscheduler");
        return 1;
    }
    for (;;) {
#if defined(__x86_64__)
        __builtin_ia32_lfence();
#else
        __asm__ volatile("" ::: "memory");
#endif
    }
}
