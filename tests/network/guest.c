// Datagrams in a guest, whose busybox has no program for them:
//   datagram ask HOST PORT WORD    says the word until there is an answer, and prints that
//   datagram echo PORT             sends back what comes
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int main(int count, char **words)
{
    char bytes[65536];
    struct sockaddr_in end = { .sin_family = AF_INET };
    int file = socket(AF_INET, SOCK_DGRAM, 0);
    if (count == 3 && strcmp(words[1], "echo") == 0) {
        end.sin_port = htons(atoi(words[2]));
        if (bind(file, (struct sockaddr *)&end, sizeof end) != 0)
            return 1;
        for (;;) {
            socklen_t size = sizeof end;
            ssize_t length = recvfrom(file, bytes, sizeof bytes, 0, (struct sockaddr *)&end, &size);
            if (length >= 0)
                sendto(file, bytes, length, 0, (struct sockaddr *)&end, size);
        }
    }
    if (count != 5)
        return 2;
    struct timeval second = { .tv_sec = 1 };
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    end.sin_port = htons(atoi(words[3]));
    inet_pton(AF_INET, words[2], &end.sin_addr);
    for (int attempt = 0; attempt < 20; attempt++) {
        sendto(file, words[4], strlen(words[4]), 0, (struct sockaddr *)&end, sizeof end);
        ssize_t length = recv(file, bytes, sizeof bytes, 0);
        if (length >= 0) {
            printf("%.*s\n", (int)length, bytes);
            return 0;
        }
    }
    return 3;
}
