/* A hostile kernel module: `insmod hostile.ko attack=NAME seed=N rounds=N lethal=1`.
 *
 * The attacks are made by a thread, since some end in an oops, with which Linux ends the thread; then
 * another one goes on with the next round. Those attacks that would take the machine with them run
 * behind a fence (fence.c), so that there can be thousands. */
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/task.h>

#include "hostile.h"

static char *attack = "";
module_param(attack, charp, 0);
static ulong seed = 1;
module_param(seed, ulong, 0);
static ulong rounds = 1000;
module_param(rounds, ulong, 0);
bool lethal;
module_param(lethal, bool, 0);

static u64 random_state;

u64 any(void)
{
    return next_random(&random_state);
}

u64 chance(u64 below)
{
    return (any() >> 3) % below;
}

void reached(const char *what, u64 address)
{
    pr_emerg("hostile: REACHED by %s: %llx\n", what, address);
}

static const struct attack *find(const struct attack *attacks)
{
    for (; attacks->name; attacks++)
        if (!strcmp(attacks->name, attack))
            return attacks;
    return NULL;
}

static const struct attack *chosen;
static ulong done;
static bool finished;

static int work(void *unused)
{
    while (done < rounds) {
        done++;
        chosen->once();
        if (done % 64 == 0)
            cond_resched();
    }
    WRITE_ONCE(finished, true);
    return 0;
}

static int __init begin(void)
{
    int error = fence_make(), deaths = 0;
    chosen = find(MEMORY_ATTACKS);
    if (!chosen)
        chosen = find(PROCESSOR_ATTACKS);
    if (error || !chosen)
        return error ? error : -EINVAL;
    random_state = seed * 0x9e3779b97f4a7c15 | 1;
    for (int n = 0; n < 8; n++)
        any();
    pr_emerg("hostile: begin %s\n", attack);
    while (!READ_ONCE(finished)) {
        struct task_struct *worker = kthread_create(work, NULL, "hostile");
        if (IS_ERR(worker))
            return PTR_ERR(worker);
        kthread_bind(worker, smp_processor_id());
        get_task_struct(worker);
        wake_up_process(worker);
        while (!READ_ONCE(finished) && !READ_ONCE(worker->exit_state))
            usleep_range(100, 200);
        put_task_struct(worker);
        deaths += !finished;
    }
    pr_emerg("hostile: survived %lu rounds of %s, %d of them in an oops\n", done, attack, deaths);
    return 0;
}

static void __exit end(void)
{
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Attacks what is around its machine");
