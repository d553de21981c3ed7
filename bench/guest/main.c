/* The runner: measures what it is told to and says what it found, on standard output.
 *
 *     @ init                     first line of all
 *     @ clock NANOSECONDS        its clock, at the beginning and at the end
 *     @ begin NAME               from here until the next line with NAME, that number is measured
 *     @ timed NAME               its preparation is done
 *     @ value NAME NUMBER        nanoseconds for one operation, or a rate
 *     @ unsupported NAME         this processor or system cannot
 *     @ absent NAME WHY          its programs are not there
 *     @ failed NAME              its program broke
 *     @ idle                     nothing more is to come
 *
 * Settings are environment variables; a kernel hands those of its command line to init.
 *
 *     bench_only=NAME,NAME       what to measure: functions of this program, or scripts: the
 *                                directory /bench/NAME with `prepare`, which is not timed, and
 *                                `run`, which is, unless it prints `rate NUMBER`; either may
 *                                print `absent WHY`
 *     bench_milliseconds=N       how long one repetition of a function is to take
 *     bench_repeat=N             repetitions of a function; the median counts
 *     bench_scale=N              for scripts: how much to do, in percent
 *     bench_machine=1            this is the first process of a machine of its own
 *     bench_root=DEVICE          which has its root on this disk, with ext4; the modules for it are in /modules */
#define _GNU_SOURCE
#include "bench.h"
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

volatile uint64_t sink;
char self[4096];

static const struct program programs[] = {
    {"sha256", sha256}, {"nbody", nbody}, {"qsort", sort}, {"bytecode", bytecode},
    {"chase", chase}, {"memcpy", copy}, {"memcpy-16k", copy_16k}, {"sse", sse}, {"avx", avx},
    {"null-syscall", null_syscall}, {"read-byte", read_byte}, {"stat", stat_file},
    {"open-close", open_close}, {"signal", signal_delivery},
    {"protection-fault", protection_fault}, {"pipe", pipe_round_trip},
    {"unix-socket", unix_round_trip}, {"tcp", tcp_round_trip}, {"fork-exit", fork_exit},
    {"fork-exec", fork_exec}, {"shell", shell}, {"thread", thread},
    {"anonymous-fault", anonymous_fault}, {"file-fault", file_fault},
    {"map-touch-unmap", map_touch_unmap}, {"switch-2p-0k", switch_2p_0k},
    {"switch-2p-16k", switch_2p_16k}, {"switch-2p-64k", switch_2p_64k},
    {"switch-8p-16k", switch_8p_16k}, {"switch-8p-64k", switch_8p_64k},
    {"switch-16p-16k", switch_16p_16k}, {"switch-16p-64k", switch_16p_64k},
    {"create-0k", create_0k}, {"delete-0k", delete_0k}, {"create-10k", create_10k},
    {"delete-10k", delete_10k}, {"map-file", map_file}, {"select-tcp", select_tcp},
    {"signal-install", signal_install},
};

void must(int fine, const char *what) {
    if (fine) return;
    perror(what);
    _exit(1);
}

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    long value = text ? atol(text) : 0;
    return value > 0 ? value : otherwise;
}

static void say(const char *kind, const char *name) {
    printf("@ %s%s%s\n", kind, name ? " " : "", name ? name : "");
    fflush(stdout);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Call until caches are warm, find out how often to call in the time that one repetition is to take,
 * and repeat. What is measured may be a small part of what is done: a repetition takes no longer than
 * a few times the time that it is to take, however little of that counts. */
static void measure(const struct program *program) {
    enum { MOST = 64, WARM = 5, PATIENCE = 4 };
    double wanted = setting("bench_milliseconds", 20) * 1e6, samples[MOST];
    double longest = PATIENCE * wanted, took, spent;
    long repeat = setting("bench_repeat", 5), n = 1;
    double start = now();
    for (int calls = 0; calls < WARM || (calls < MOST && now() - start < wanted / 4); calls++) {
        if (program->run(1) < 0) {
            say("unsupported", program->name);
            return;
        }
    }
    for (;;) {
        start = now();
        took = program->run(n);
        spent = now() - start;
        if (took >= wanted / 4 || spent >= longest / 4) break;
        double factor = took > 0 ? wanted / 3 / took : 16, most = longest / 3 / spent;
        factor = factor > 16 ? 16 : factor;
        factor = factor > most ? most : factor;
        n = n * (factor < 2 ? 2 : factor);
    }
    n = took * longest > spent * wanted ? n * wanted / took : n * longest / spent;
    if (n < 1) n = 1;
    if (repeat > MOST) repeat = MOST;
    for (long i = 0; i < repeat; i++) samples[i] = program->run(n) / n;
    qsort(samples, repeat, sizeof *samples, ascending);
    printf("@ value %s %.3f\n", program->name, samples[repeat / 2]);
    fflush(stdout);
}

/* Run /bench/NAME/STEP; its line `rate NUMBER`, if there is one, is put into rate. Whether it goes on. */
static int step(const char *name, const char *what, double *rate) {
    char command[512], line[4096];
    int absent = 0;
    snprintf(command, sizeof command, "exec /bin/sh -eu /bench/%s/%s", name, what);
    FILE *output = popen(command, "r");
    must(output != NULL, "popen");
    while (fgets(line, sizeof line, output)) {
        if (!strncmp(line, "absent ", 7)) {
            printf("@ absent %s %s", name, line + 7);
            fflush(stdout);
            absent = 1;
        } else if (sscanf(line, "rate %lf", rate) != 1) {
            fputs(line, stderr);
        }
    }
    if (pclose(output)) _exit(1);
    return !absent;
}

static void script(const char *name) {
    double rate = -1;
    if (!step(name, "prepare", &rate)) return;
    say("timed", name);
    double start = now();
    if (!step(name, "run", &rate)) return;
    double took = now() - start;
    printf("@ value %s %.3f\n", name, rate < 0 ? took : rate);
    fflush(stdout);
}

/* Each number has a process of its own, so that none breaks or burdens the next. */
static void one(const char *name) {
    int status = -1;
    say("begin", name);
    pid_t child = fork();
    if (!child) {
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
            if (!strcmp(programs[i].name, name)) {
                measure(&programs[i]);
                _exit(0);
            }
        script(name);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status) say("failed", name);
}

/* Load a kernel's modules, in the order of their names. */
static void load_modules(void) {
    struct dirent **entries;
    int count = scandir("/modules", &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[512];
        if (entries[i]->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/modules/%s", entries[i]->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0 || syscall(SYS_finit_module, file, "", 0)) perror(path);
        if (file >= 0) close(file);
    }
}

/* Go on with the disk as the root, with our own files in it. */
static void enter_root(const char *device) {
    mkdir("/root", 0755);
    load_modules();
    for (int tries = 0; access(device, F_OK) && tries < 1000; tries++) usleep(10000);
    must(!mount(device, "/root", "ext4", MS_RDONLY, NULL), device);
    must(!mount("/bench", "/root/bench", NULL, MS_BIND, NULL), "/bench");
    must(!chdir("/root") && !mount(".", "/", NULL, MS_MOVE, NULL), "move the root");
    must(!chroot(".") && !chdir("/"), "change the root");
    if (mount("dev", "/dev", "devtmpfs", 0, NULL)) perror("mount /dev");
    if (mount("run", "/run", "tmpfs", 0, NULL)) perror("mount /run");
    if (mount("var", "/var", "tmpfs", 0, NULL)) perror("mount /var");
}

static void prepare_machine(void) {
    const char *root = getenv("bench_root");
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/dev", 0755), mkdir("/tmp", 01777);
    if (mount("dev", "/dev", "devtmpfs", 0, NULL)) perror("mount /dev");
    if (root) enter_root(root);
    if (mount("proc", "/proc", "proc", 0, NULL)) perror("mount /proc");
    if (mount("sysfs", "/sys", "sysfs", 0, NULL)) perror("mount /sys");
    if (mount("tmp", "/tmp", "tmpfs", 0, "size=75%")) perror("mount /tmp");
    mkdir("/dev/shm", 01777);
    if (mount("shm", "/dev/shm", "tmpfs", 0, NULL)) perror("mount /dev/shm");
    int control = socket(AF_INET, SOCK_DGRAM, 0);
    if (control < 0 || ioctl(control, SIOCSIFFLAGS, &loopback)) perror("loopback");
    close(control);
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
}

static void say_clock(void) {
    printf("@ clock %.0f\n", now());
    fflush(stdout);
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1 && !strcmp(arguments[1], "nothing")) return 0;
    int machine = setting("bench_machine", 0) == 1;
    say("init", NULL);
    if (machine) prepare_machine();
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) perror("/proc/self/exe");
    say_clock();
    char *only = getenv("bench_only");
    for (char *name = only ? strtok(only, ",") : NULL; name; name = strtok(NULL, ",")) one(name);
    say_clock();
    say("idle", NULL);
    if (machine) sleep(1);
    if (machine) {
        sync();
        reboot(RB_POWER_OFF);
    }
    return 0;
}
