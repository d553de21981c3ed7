// Virtio sockets in a guest, whose busybox has no program for them:
//   socket echo PORT      sends each who connects what comes from him, until that ends
//   socket deaf PORT      takes whoever connects, and reads nothing
//   socket stream PORT    sends its input to that port of the host's, and prints what comes
#include <linux/vm_sockets.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int copy(int from, int to)
{
    char bytes[65536];
    ssize_t count;
    while ((count = read(from, bytes, sizeof bytes)) > 0) {
        for (ssize_t done = 0; done < count;) {
            ssize_t now = write(to, bytes + done, count - done);
            if (now < 0)
                return -1;
            done += now;
        }
    }
    return count;
}

static void *echo(void *number)
{
    int file = (long)number;
    copy(file, file);
    close(file);
    return NULL;
}

static void *send_input(void *number)
{
    int file = (long)number;
    copy(0, file);
    shutdown(file, SHUT_WR);
    return NULL;
}

int main(int count, char **words)
{
    struct sockaddr_vm end = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY };
    int file = socket(AF_VSOCK, SOCK_STREAM, 0);
    pthread_t thread;
    if (count != 3)
        return 2;
    end.svm_port = atoi(words[2]);
    if (strcmp(words[1], "stream") == 0) {
        end.svm_cid = VMADDR_CID_HOST;
        if (connect(file, (struct sockaddr *)&end, sizeof end) != 0) {
            perror("connect");
            return 1;
        }
        pthread_create(&thread, NULL, send_input, (void *)(long)file);
        return copy(file, 1) < 0;
    }
    if (bind(file, (struct sockaddr *)&end, sizeof end) != 0 || listen(file, 100) != 0) {
        perror("listen");
        return 1;
    }
    for (;;) {
        long other = accept(file, NULL, NULL);
        if (other >= 0 && strcmp(words[1], "echo") == 0)
            pthread_create(&thread, NULL, echo, (void *)other);
    }
}
